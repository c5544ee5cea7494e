#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hanji::cli {

/// What a verb does once it was chosen. Result: the exit code.
using Run = std::function<int()>;

/// Where the value of an option goes, and what it may be; must outlive CommandLine::run().
using Target = std::variant<std::string*, std::optional<std::string>*, std::vector<std::string>*,
                            int*, int64_t*, std::optional<int64_t>*, uint64_t*, double*>;

/// What parsing finds out.
struct Parsing {
  struct Mistake {
    const CLI::Option* option = nullptr;  ///< None: of no option that there is.
    std::string words;
  };

  /// Of an option's mistakes the first is kept.
  void add(const CLI::Option* option, std::string words);

  Run chosen;
  std::vector<Mistake> mistakes;
  std::map<const CLI::Option*, std::vector<std::string>> values;  ///< Where no others are taken.
};

/// An option, a flag or a positional argument, as the help lists it.
struct OptionDescription {
  std::vector<std::string> names;   ///< Typed forms, short ones first; none: a positional argument.
  std::string type;                 ///< The name of its value, such as FILE; empty: a flag.
  std::vector<std::string> values;  ///< All that it takes; empty: any.
  std::string doc;
};

/// A verb, or the command, with what the help lists of it.
struct VerbDescription {
  std::string name, doc;
  std::vector<OptionDescription> options;
  std::vector<VerbDescription> verbs;
};

/// A handle to an option, a flag or a positional argument. Each call changes what it refers to and
/// returns the handle.
class Option {
 public:
  Option(CLI::Option* option, Parsing* parsing) : option_(option), parsing_(parsing) {}

  Option required() const;
  /// Names its value in the help, such as FILE.
  Option type_name(const std::string& name) const;
  /// The help shows the value that the target has now.
  Option show_default() const;
  /// The heading of the help below which it stands; empty: it is not listed.
  Option group(const std::string& name) const;

  Option needs(Option other) const;
  Option excludes(Option other) const;
  Option range(int least, int most) const;
  Option range(uint64_t least, uint64_t most) const;
  Option not_negative() const;
  Option one_of(const std::vector<std::string>& values) const;
  /// Takes a name and stores its number, which may be typed as well.
  Option translate(const std::map<std::string, int>& numbers) const;
  /// May be given again; each time takes one value.
  Option repeatable() const;
  /// Its value may be left out, and is this one then.
  Option implicit_value(const std::string& value) const;

 private:
  CLI::Option* option_;
  Parsing* parsing_;
};

/// A handle to a verb, or to the command, whose verbs are declared on it.
class Verb {
 public:
  Verb(CLI::App* app, Parsing* parsing) : app_(app), parsing_(parsing) {}

  /// `doc` stands in the list of verbs; empty: the verb is not listed.
  Verb add_verb(const std::string& name, const std::string& doc) const;
  /// Exactly one of its verbs must be chosen.
  void require_verb() const;
  /// `names` as they are typed, with commas between them; without dashes: a positional argument.
  Option add_option(const std::string& names, Target target, const std::string& doc = "") const;
  Option add_flag(const std::string& name, bool* target, const std::string& doc = "") const;
  /// What follows the first positional argument belongs to it, dashes or not.
  void positionals_at_end() const;
  /// The last words of the help.
  void footer(const std::string& text) const;
  void on_chosen(Run run) const;

  /// What was declared until now on it and its verbs, without what is not listed.
  VerbDescription describe() const;

  /// Whether the user gave an option, and its text. Order: after parsing, in a Run.
  bool was_given(const std::string& option) const;
  std::string text_of(const std::string& option) const;

 private:
  CLI::App* app_;
  Parsing* parsing_;
};

/// The command line: verbs, options, help and mistakes. Its source alone knows the parser.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& doc, const std::string& version);
  ~CommandLine();

  Verb root() { return {app_.get(), &parsing_}; }

  /// Parses the words after the command's name, and runs what was chosen.
  /// Result  its exit code, 0 if there was nothing to run. Of mistakes kUsage, all printed to stderr;
  ///         of --help and --version 0, printed to stdout.
  int run(std::vector<std::string> arguments);

 private:
  /// Prints what is wrong and where help is. Result: kUsage.
  int refuse() const;

  std::unique_ptr<CLI::App> app_;
  Parsing parsing_;
};

/// A whole number as an int target reads it; nothing for other text.
std::optional<int> parse_int(const std::string& text);

}  // namespace hanji::cli
