#include "hanji/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "hanji/cli/exit_code.h"

namespace hanji::cli {

Option Option::required() const { return Option(option_->required()); }

Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }

Option Option::show_default() const { return Option(option_->capture_default_str()); }

Option Option::group(const std::string& name) const { return Option(option_->group(name)); }

Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }

Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }

Option Option::range(int least, int most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::range(uint64_t least, uint64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::not_negative() const { return Option(option_->check(CLI::NonNegativeNumber)); }

Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}

Option Option::translate(const std::map<std::string, int>& numbers) const {
  return Option(option_->transform(CLI::CheckedTransformer(numbers)));
}

Option Option::repeatable() const { return Option(option_->take_all()->allow_extra_args(false)); }

Option Option::implicit_value(const std::string& value) const {
  return Option(option_->expected(0, 1)->default_str(value));
}

Verb Verb::add_verb(const std::string& name, const std::string& doc) const {
  CLI::App* verb = app_->add_subcommand(name, doc);
  if (doc.empty()) verb->group("");
  return {verb, chosen_};
}

void Verb::require_verb() const { app_->require_subcommand(1); }

Option Verb::add_option(const std::string& names, Target target, const std::string& doc) const {
  return std::visit([&](auto* value) { return Option(app_->add_option(names, *value, doc)); },
                    target);
}

Option Verb::add_flag(const std::string& name, bool* target, const std::string& doc) const {
  return Option(app_->add_flag(name, *target, doc));
}

void Verb::positionals_at_end() const { app_->positionals_at_end(); }

void Verb::footer(const std::string& text) const { app_->footer(text); }

void Verb::on_chosen(Run run) const {
  // The parser calls this after that of a verb of its own, which was chosen then.
  app_->callback([run = std::move(run), chosen = chosen_, app = app_] {
    if (app->get_subcommands().empty()) *chosen = run;
  });
}

bool Verb::was_given(const std::string& option) const { return app_->count(option) > 0; }

std::string Verb::text_of(const std::string& option) const {
  return (*app_)[option]->as<std::string>();
}

CommandLine::CommandLine(const std::string& name, const std::string& doc,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(doc, name)) {
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(std::vector<std::string> arguments) {
  std::ranges::reverse(arguments);  // the parser takes them from the end
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app_->exit(error, std::cout, std::cerr) == 0 ? 0 : kUsage;
  }
  return chosen_ ? chosen_() : 0;
}

std::optional<int> parse_int(const std::string& text) {
  int value = 0;
  if (!CLI::detail::lexical_cast(text, value)) return std::nullopt;
  return value;
}

}  // namespace hanji::cli
