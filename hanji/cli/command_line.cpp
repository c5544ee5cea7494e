#include "hanji/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <limits>
#include <type_traits>

#include "hanji/base/text.h"
#include "hanji/cli/exit_code.h"

namespace hanji::cli {
namespace {

/// Why a whole number does not fit, which the parser would take as another one; empty if it does.
template <class T>
std::string out_of_range(const std::string& text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_negative = std::is_unsigned_v<T> && text.starts_with('-');
  if (error != std::errc::result_out_of_range && !is_negative) return "";
  return fmt::format("{} is not from {} to {}", text, std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

}  // namespace

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

Option Option::not_negative() const {
  const auto negative = [](const std::string& text) {
    return text.starts_with('-') ? text + " is below 0" : std::string();
  };
  return Option(option_->check(CLI::Validator(negative, "")));
}

Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}

Option Option::translate(const std::map<std::string, int>& numbers) const {
  const auto number_of = [numbers](std::string& text) -> std::string {
    std::string names;
    for (const auto& [name, number] : numbers) {
      if (text == name || text == std::to_string(number)) {
        text = std::to_string(number);
        return "";
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    return text + " is none of " + names;
  };
  return Option(option_->transform(CLI::Validator(number_of, "")));
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
  return std::visit(
      [&](auto* value) {
        CLI::Option* option = app_->add_option(names, *value, doc);
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, int64_t> ||
                      std::is_same_v<Value, std::optional<int64_t>>) {
          option->check(CLI::Validator(out_of_range<int64_t>, ""));
        } else if constexpr (std::is_same_v<Value, uint64_t>) {
          option->check(CLI::Validator(out_of_range<uint64_t>, ""));
        }
        return Option(option);
      },
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

namespace {

/// Of words that should choose a verb where one is required: the first that is none, and those there are.
std::string unknown_verb(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* verb = &app;
  for (const std::string& word : words) {
    if (word.starts_with('-')) return "";
    const auto verbs =
        verb->get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
    const auto found =
        std::ranges::find_if(verbs, [&](const CLI::App* one) { return one->get_name() == word; });
    if (found != verbs.end()) {
      verb = *found;
      continue;
    }
    if (verb->get_require_subcommand_min() == 0) return "";
    std::vector<std::string_view> names;
    std::string list;
    for (const CLI::App* one : verbs) {
      names.push_back(one->get_name());
      list += (list.empty() ? "" : ", ") + one->get_name();
    }
    const auto meant = base::nearest(word, names);
    return "'" + word + "' is no verb of " + verb->get_name() +
           (meant ? "; did you mean " + *meant + "?" : "; its verbs are " + list);
  }
  return "";
}

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& doc,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(doc, name)) {
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(std::vector<std::string> arguments) {
  const std::vector<std::string> words = arguments;
  std::ranges::reverse(arguments);  // the parser takes them from the end
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = unknown_verb(*app_, words); !unknown.empty()) {
      std::cerr << unknown << "\n";
      return kUsage;
    }
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
