#include "hanji/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <limits>
#include <type_traits>

#include "hanji/base/terminal.h"
#include "hanji/base/text.h"
#include "hanji/cli/exit_code.h"

namespace hanji::cli {
namespace {

using Why = std::function<std::string(const std::string&)>;

/// Why a text is no value of this type, which the parser would take as another one or end at; empty if it is.
template <class T>
std::string unread(const std::string& text) {
  if constexpr (std::is_integral_v<T>) {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_negative = std::is_unsigned_v<T> && text.starts_with('-');
    if (error == std::errc::result_out_of_range || is_negative) {
      return fmt::format("not from {} to {}", std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max());
    }
  }
  T value = 0;
  if (CLI::detail::lexical_cast(text, value)) return "";
  return std::is_integral_v<T> ? "no whole number" : "no number";
}

/// Refuses a value without ending the parsing, so that all mistakes are found.
void refuse(Parsing* parsing, const CLI::Option* option, const std::string& text,
            const std::string& why) {
  parsing->add(option, fmt::format("{} is {}, which is {}", option->get_name(), text, why));
}

/// A check that refuses where `why` has words; `shape` has those of the help.
CLI::Validator refusing(CLI::Option* option, Parsing* parsing, CLI::Validator shape, Why why) {
  return shape.operation([=](const std::string& text) {
    if (const std::string words = why(text); !words.empty()) refuse(parsing, option, text, words);
    return std::string();
  });
}

/// What stands for a number that cannot be read.
constexpr const char* kUnread = "0";

/// A number is read before its range is checked.
template <class T>
void expect_number(CLI::Option* option, Parsing* parsing) {
  option->transform(CLI::Validator(
      [=](std::string& text) {
        if (const std::string words = unread<T>(text); !words.empty()) {
          refuse(parsing, option, text, words);
          text = kUnread;
        }
        return std::string();
      },
      ""));
}

std::string none_of(const std::string& text, const std::vector<std::string_view>& names) {
  const auto meant = base::nearest(text, names);
  return fmt::format("none of {}{}", fmt::join(names, ", "),
                     meant ? "; did you mean " + *meant + "?" : "");
}

template <class T>
CLI::Validator in_range(CLI::Option* option, Parsing* parsing, T least, T most) {
  return refusing(option, parsing, CLI::Range(least, most), [=](const std::string& text) {
    T value = 0;
    const bool is_within =
        CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return is_within ? "" : fmt::format("not from {} to {}", least, most);
  });
}

}  // namespace

void Parsing::add(const CLI::Option* option, std::string words) {
  const auto is_of_it = [&](const Mistake& one) { return one.option == option; };
  if (option != nullptr && std::ranges::any_of(mistakes, is_of_it)) return;
  mistakes.push_back({option, std::move(words)});
}

Option Option::required() const { return {option_->required(), parsing_}; }

Option Option::type_name(const std::string& name) const {
  return {option_->type_name(name), parsing_};
}

Option Option::show_default() const { return {option_->capture_default_str(), parsing_}; }

Option Option::group(const std::string& name) const { return {option_->group(name), parsing_}; }

Option Option::needs(Option other) const { return {option_->needs(other.option_), parsing_}; }

Option Option::excludes(Option other) const { return {option_->excludes(other.option_), parsing_}; }

Option Option::range(int least, int most) const {
  return {option_->check(in_range(option_, parsing_, least, most)), parsing_};
}

Option Option::range(uint64_t least, uint64_t most) const {
  return {option_->check(in_range(option_, parsing_, least, most)), parsing_};
}

Option Option::not_negative() const {
  const auto negative = [](const std::string& text) {
    return std::string(text.starts_with('-') ? "below 0" : "");
  };
  return {option_->check(refusing(option_, parsing_, CLI::Validator(""), negative)), parsing_};
}

Option Option::one_of(const std::vector<std::string>& values) const {
  parsing_->values[option_] = values;
  const auto other = [values](const std::string& text) {
    const bool is_there = std::ranges::find(values, text) != values.end();
    return is_there ? "" : none_of(text, {values.begin(), values.end()});
  };
  return {option_->check(refusing(option_, parsing_, CLI::IsMember(values), other)), parsing_};
}

Option Option::translate(const std::map<std::string, int>& numbers) const {
  std::vector<std::string>& values = parsing_->values[option_];
  for (const auto& [name, number] : numbers) values.push_back(name);
  const auto number_of = [=, option = option_, parsing = parsing_](std::string& text) {
    std::vector<std::string_view> names;
    for (const auto& [name, number] : numbers) {
      names.push_back(name);
      if (text != name && text != std::to_string(number)) continue;
      text = std::to_string(number);
      return std::string();
    }
    refuse(parsing, option, text, none_of(text, names));
    text = kUnread;
    return std::string();
  };
  return {option_->transform(CLI::Validator(number_of, "")), parsing_};
}

Option Option::repeatable() const {
  return {option_->take_all()->allow_extra_args(false), parsing_};
}

Option Option::implicit_value(const std::string& value) const {
  return {option_->expected(0, 1)->default_str(value), parsing_};
}

Verb Verb::add_verb(const std::string& name, const std::string& doc) const {
  CLI::App* verb = app_->add_subcommand(name, doc);
  if (doc.empty()) verb->group("");
  return {verb, parsing_};
}

void Verb::require_verb() const { app_->require_subcommand(1); }

Option Verb::add_option(const std::string& names, Target target, const std::string& doc) const {
  return std::visit(
      [&](auto* value) {
        CLI::Option* option = app_->add_option(names, *value, doc);
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<Value>) {
          expect_number<Value>(option, parsing_);
        } else if constexpr (std::is_same_v<Value, std::optional<int64_t>>) {
          expect_number<int64_t>(option, parsing_);
        }
        if constexpr (!std::is_same_v<Value, std::vector<std::string>>) {
          option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        }
        return Option(option, parsing_);
      },
      target);
}

Option Verb::add_flag(const std::string& name, bool* target, const std::string& doc) const {
  return {app_->add_flag(name, *target, doc), parsing_};
}

void Verb::positionals_at_end() const { app_->positionals_at_end(); }

void Verb::footer(const std::string& text) const { app_->footer(text); }

void Verb::on_chosen(Run run) const {
  // The parser calls this after that of a verb of its own, which was chosen then.
  app_->callback([run = std::move(run), parsing = parsing_, app = app_] {
    if (app->get_subcommands().empty()) parsing->chosen = run;
  });
}

namespace {

bool is_listed(const CLI::App* verb) { return !verb->get_group().empty(); }

OptionDescription describe_option(const CLI::Option& option,
                                  const std::vector<std::string>& values) {
  OptionDescription one{{}, "", values, option.get_description()};
  for (const std::string& name : option.get_snames()) one.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) one.names.push_back("--" + name);
  const bool is_flag = option.get_type_size() == 0;
  const std::string checked = option.get_type_name();  // "INT:INT in [1 - 5]"
  if (!is_flag) one.type = checked.substr(0, checked.find(':'));
  return one;
}

}  // namespace

VerbDescription Verb::describe() const {
  VerbDescription verb{app_->get_name(), app_->get_description(), {}, {}};
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    const auto values = parsing_->values.find(option);
    verb.options.push_back(describe_option(
        *option, values == parsing_->values.end() ? std::vector<std::string>{} : values->second));
  }
  for (CLI::App* one : app_->get_subcommands(nullptr)) {
    if (is_listed(one)) verb.verbs.push_back(Verb(one, parsing_).describe());
  }
  return verb;
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
    const auto verbs = verb->get_subcommands(is_listed);
    const auto found =
        std::ranges::find_if(verbs, [&](const CLI::App* one) { return one->get_name() == word; });
    if (found != verbs.end()) {
      verb = *found;
      continue;
    }
    if (verb->get_require_subcommand_min() == 0) return "";
    std::vector<std::string_view> names;
    for (const CLI::App* one : verbs) names.push_back(one->get_name());
    const auto meant = base::nearest(word, names);
    return fmt::format("'{}' is no verb of {}; {}", word, verb->get_name(),
                       meant ? "did you mean " + *meant + "?"
                             : fmt::format("its verbs are {}", fmt::join(names, ", ")));
  }
  return "";
}

/// The command and the verbs chosen of it.
std::vector<const CLI::App*> chosen_verbs(const CLI::App& app) {
  std::vector<const CLI::App*> verbs = {&app};
  while (!verbs.back()->get_subcommands().empty()) {
    verbs.push_back(verbs.back()->get_subcommands().front());
  }
  return verbs;
}

/// The option that a flag may have meant.
std::string meant_by(const std::string& flag, const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const auto meant = base::nearest(flag, std::vector<std::string_view>(names.begin(), names.end()));
  return meant ? "; did you mean " + *meant + "?" : "";
}

/// A value behind a flag that is unknown belongs to it.
void add_unexpected(const CLI::App& app, const std::vector<std::string>& words, Parsing& parsing) {
  std::vector<std::string> rest = app.remaining(true);
  std::erase(rest, "--");  // in front of a command; the parser takes it and keeps it here
  const std::string verb = chosen_verbs(app).back()->get_name();
  bool is_behind_flag = false;
  for (const std::string& word : words) {
    const auto found = std::ranges::find(rest, word);
    const bool is_flag = word.size() > 1 && word.starts_with('-');
    if (found != rest.end() && is_flag) {
      const std::string flag = word.substr(0, word.find('='));
      parsing.add(nullptr, fmt::format("{} is no option of {}{}", flag, verb,
                                       meant_by(flag, *chosen_verbs(app).back())));
    } else if (found != rest.end() && !is_behind_flag) {
      parsing.add(nullptr, fmt::format("{} does not take '{}'", verb, word));
    }
    is_behind_flag = found != rest.end() && is_flag;
    if (found != rest.end()) rest.erase(found);
  }
}

void add_repeated(const CLI::App& app, Parsing& parsing) {
  for (const CLI::App* verb : chosen_verbs(app)) {
    for (const CLI::Option* option : verb->get_options()) {
      const bool takes_one =
          option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast &&
          option->get_expected_max() == 1 && !option->get_type_name().empty();
      if (!takes_one || option->count() < 2) continue;
      parsing.add(option, fmt::format("{} was given {} times; give it once", option->get_name(),
                                      option->count()));
    }
  }
}

/// Of a mistake that ends the parsing.
std::string describe(const CLI::ParseError& error) {
  const std::string words = error.what();
  if (error.get_name() != "ArgumentMismatch") return words;
  return words.substr(0, words.find(':')) + " needs a value behind it";
}

}  // namespace

namespace {

/// Help in lines that fit the terminal, with explanations below each other.
class FittingHelp : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    constexpr int kIndent = 2;  // of options and verbs
    const int columns = base::terminal_columns(STDOUT_FILENO);
    const int explained_at = static_cast<int>(get_column_width());
    const std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    std::string text;
    for (const std::string_view line : base::split(help, '\n')) {
      const bool is_named = line.find_first_not_of(' ') == kIndent;
      text += base::wrap(line, columns, is_named ? explained_at - kIndent : 0) + "\n";
    }
    text.pop_back();
    return text;
  }
};

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& doc,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(doc, name)) {
  app_->set_version_flag("--version", version);
  app_->formatter(std::make_shared<FittingHelp>());
}

CommandLine::~CommandLine() = default;

int CommandLine::run(std::vector<std::string> arguments) {
  const std::vector<std::string> words = arguments;
  std::ranges::reverse(arguments);  // the parser takes them from the end
  parsing_.chosen = nullptr;
  parsing_.mistakes.clear();
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error, std::cout, std::cerr);
    if (const std::string unknown = unknown_verb(*app_, words); !unknown.empty()) {
      parsing_.mistakes = {{nullptr, unknown}};
      return refuse();
    }
    const bool is_of_extras =
        error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    if (!is_of_extras) parsing_.add(nullptr, describe(error));
  }
  add_repeated(*app_, parsing_);
  add_unexpected(*app_, words, parsing_);
  if (!parsing_.mistakes.empty()) return refuse();
  return parsing_.chosen ? parsing_.chosen() : 0;
}

int CommandLine::refuse() const {
  for (const Parsing::Mistake& one : parsing_.mistakes) {
    std::cerr << app_->get_name() << ": " << one.words << "\n";
  }
  std::string path;
  for (const CLI::App* verb : chosen_verbs(*app_)) path += verb->get_name() + " ";
  std::cerr << path << "--help says what there is\n";
  return kUsage;
}

std::optional<int> parse_int(const std::string& text) {
  int value = 0;
  if (!CLI::detail::lexical_cast(text, value)) return std::nullopt;
  return value;
}

}  // namespace hanji::cli
