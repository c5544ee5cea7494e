#include "hanji/cli/completion_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

namespace hanji::cli {
namespace {

/// Calls `visit` with the verb and the words that choose it: "hanji data make".
void walk(const VerbDescription& verb, const std::string& path,
          const std::function<void(const std::string&, const VerbDescription&)>& visit) {
  visit(path, verb);
  for (const VerbDescription& one : verb.verbs) walk(one, path + " " + one.name, visit);
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string one_line(const std::string& text) { return replace_all(text, "\n", " "); }

/// Quotes a text as one word of bash and zsh.
std::string quote(const std::string& text) {
  return "'" + replace_all(one_line(text), "'", "'\\''") + "'";
}

std::string quote_for_fish(const std::string& text) {
  return "'" + replace_all(replace_all(one_line(text), "\\", "\\\\"), "'", "\\'") + "'";
}

/// What a value is a place of.
enum class Place { kNone, kFile, kFolder };

Place place_of(const OptionDescription& option) {
  const auto has = [&](const char* part) { return option.type.find(part) != std::string::npos; };
  if (has("FILE") || has("PATH") || has("PNG") || has("PROGRAM")) return Place::kFile;
  if (has("DIR")) return Place::kFolder;
  return Place::kNone;
}

bool is_positional(const OptionDescription& option) { return option.names.empty(); }

/// What may follow a verb besides values: its verbs, its options, values of its positional arguments.
std::vector<std::string> words_after(const VerbDescription& verb) {
  std::vector<std::string> words;
  for (const VerbDescription& one : verb.verbs) words.push_back(one.name);
  for (const OptionDescription& option : verb.options) {
    const auto& more = is_positional(option) ? option.values : option.names;
    words.insert(words.end(), more.begin(), more.end());
  }
  return words;
}

/// Makes a name of a function, also of a command with "-" in its name.
std::string function_name(const std::string& path) {
  return "_" + replace_all(replace_all(path, " ", "_"), "-", "_");
}

/// The action of bash for a value; none of its words is completed where any may be typed.
std::string bash_values(const OptionDescription& option) {
  if (!option.values.empty())
    return fmt::format("-W {}", quote(fmt::format("{}", fmt::join(option.values, " "))));
  const Place place = place_of(option);
  return place == Place::kFile ? "-f" : place == Place::kFolder ? "-d" : "-W ''";
}

/// "bash)": the verbs, and for each what may follow it and each of its options.
std::string bash_cases(const std::string& path, const VerbDescription& verb) {
  std::string cases;
  for (const OptionDescription& option : verb.options) {
    if (is_positional(option) || option.type.empty()) continue;
    for (const std::string& name : option.names) {
      cases +=
          fmt::format("    {}) complete=({}) ;;\n", quote(path + " " + name), bash_values(option));
    }
  }
  return cases;
}

constexpr const char* kBashScript =
    R"(# Completes {name} in bash; `{name} completion bash` printed it.
{function}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} verb={name} i
  local -a complete
  [ "$word" != = ] || word=
  [ "$before" != = ] || before=${{COMP_WORDS[COMP_CWORD - 2]}}
  [ "${{COMP_WORDS[COMP_CWORD]}}" != = ] || before=${{COMP_WORDS[COMP_CWORD - 1]}}
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$verb ${{COMP_WORDS[i]}}" in
      {verbs}) verb+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$verb $before" in
{values}    *) case $verb in
{words}    esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen "${{complete[@]}}" -- "$word")
  case ${{complete[0]}} in -f | -d) compopt -o filenames ;; esac
  [ "${{complete[1]-other}}" ] || compopt +o default
}}
complete -o default -F {function} {name}
)";

/// A specification of _arguments, in which brackets and colons have a meaning.
std::string zsh_text(const std::string& text) {
  std::string escaped = one_line(text);
  for (const char* one : {"\\", "[", "]", ":"}) {
    escaped = replace_all(escaped, one, std::string("\\") + one);
  }
  return escaped;
}

std::string zsh_value(const OptionDescription& option) {
  std::string action = " ";
  if (!option.values.empty()) {
    action = fmt::format("({})", fmt::join(option.values, " "));
  } else if (const Place place = place_of(option); place != Place::kNone) {
    action = place == Place::kFile ? "_files" : "_files -/";
  }
  return fmt::format(":{}:{}", zsh_text(option.type), action);
}

std::string zsh_arguments(const VerbDescription& verb) {
  std::string text;
  for (const OptionDescription& option : verb.options) {
    if (is_positional(option)) continue;
    for (const std::string& name : option.names) {
      const std::string value = option.type.empty() ? "" : zsh_value(option);
      const char* joined = option.type.empty() ? "" : name.starts_with("--") ? "=" : "+";
      text +=
          fmt::format(" \\\n    {}",
                      quote(fmt::format("*{}{}[{}]{}", name, joined, zsh_text(option.doc), value)));
    }
  }
  return text;
}

/// What stands where no option does: verbs and values; files where none is known.
std::string zsh_words(const VerbDescription& verb) {
  std::string words;
  bool takes_any = false;
  for (const VerbDescription& one : verb.verbs) {
    words += " " + quote(one.name + ":" + one_line(one.doc));
  }
  for (const OptionDescription& option : verb.options) {
    if (!is_positional(option)) continue;
    takes_any |= option.values.empty();
    for (const std::string& value : option.values) words += " " + quote(value);
  }
  if (words.empty()) return "    _files\n";
  return fmt::format("    local -a words_here=({})\n    _describe word words_here{}\n",
                     words.substr(1), takes_any ? " || _files" : "");
}

std::string zsh_function(const std::string& path, const VerbDescription& verb) {
  std::string calls;
  for (const VerbDescription& one : verb.verbs) {
    calls += fmt::format("      {}) {} ;;\n", one.name, function_name(path + " " + one.name));
  }
  if (!calls.empty()) calls = "    case ${words[1]} in\n" + calls + "    esac\n";
  return fmt::format(
      "{}() {{\n  local state\n  _arguments -C{} \\\n    '1: :->word' '*:: :->rest'\n"
      "  case $state in\n  word)\n{}    ;;\n  rest)\n{}    ;;\n  esac\n}}\n",
      function_name(path), zsh_arguments(verb), zsh_words(verb),
      calls.empty() ? "    _files\n" : calls);
}

/// One line of `complete` for each name of an option.
std::string fish_option(const std::string& at, const OptionDescription& option) {
  std::string line = at;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.type.empty()) {
    const Place place = place_of(option);
    if (!option.values.empty()) {
      line += fmt::format(" -x -a {}",
                          quote_for_fish(fmt::format("{}", fmt::join(option.values, " "))));
    } else if (place == Place::kFolder) {
      line += " -x -a '(__fish_complete_directories)'";
    } else {
      line += place == Place::kFile ? " -r -F" : " -x";
    }
  }
  return fmt::format("{} -d {}\n", line, quote_for_fish(option.doc));
}

std::string fish_verb(const std::string& name, const std::string& path,
                      const VerbDescription& verb) {
  const std::string at = fmt::format("complete -c {} -n '__{}_at {}'", name, name, path);
  std::string lines;
  bool takes_any = false;
  for (const VerbDescription& one : verb.verbs) {
    lines += fmt::format("{} -a {} -d {}\n", at, one.name, quote_for_fish(one.doc));
  }
  for (const OptionDescription& option : verb.options) {
    takes_any |= is_positional(option) && option.values.empty();
    if (!is_positional(option)) {
      lines += fish_option(at, option);
    } else if (!option.values.empty()) {
      lines += fmt::format("{} -a {}\n", at,
                           quote_for_fish(fmt::format("{}", fmt::join(option.values, " "))));
    }
  }
  return lines + (takes_any ? at + " -F\n" : "");
}

constexpr const char* kFishScript =
    R"(# Completes {name} in fish; `{name} completion fish` printed it.
set -g __{name}_verbs {verbs}
function __{name}_at
    set -l verb {name}
    for word in (commandline -opc)[2..-1]
        if contains -- "$verb $word" $__{name}_verbs
            set verb "$verb $word"
        end
    end
    test "$verb" = "$argv"
end
complete -c {name} -f
)";

}  // namespace

std::string bash_completion(const VerbDescription& command) {
  std::vector<std::string> verbs;
  std::string values, words;
  walk(command, command.name, [&](const std::string& path, const VerbDescription& verb) {
    if (path != command.name) verbs.push_back(quote(path));
    values += bash_cases(path, verb);
    words += fmt::format("      {}) complete=(-W {}) ;;\n", quote(path),
                         quote(fmt::format("{}", fmt::join(words_after(verb), " "))));
  });
  return fmt::format(fmt::runtime(kBashScript), fmt::arg("name", command.name),
                     fmt::arg("function", function_name(command.name)),
                     fmt::arg("verbs", fmt::format("{}", fmt::join(verbs, " | "))),
                     fmt::arg("values", values), fmt::arg("words", words));
}

std::string zsh_completion(const VerbDescription& command) {
  std::string text = fmt::format(
      "#compdef {0}\n# Completes {0} in zsh; `{0} completion zsh` printed it.\n", command.name);
  walk(command, command.name, [&](const std::string& path, const VerbDescription& verb) {
    text += zsh_function(path, verb);
  });
  // Either a file of $fpath, whose text is the function's, or read by `source`.
  return text +
         fmt::format("if [ \"$funcstack[1]\" = {0} ]; then {0} \"$@\"; else compdef {0} {1}; fi\n",
                     function_name(command.name), command.name);
}

std::string fish_completion(const VerbDescription& command) {
  std::vector<std::string> verbs;
  std::string lines;
  walk(command, command.name, [&](const std::string& path, const VerbDescription& verb) {
    if (path != command.name) verbs.push_back(quote_for_fish(path));
    lines += fish_verb(command.name, path, verb);
  });
  return fmt::format(fmt::runtime(kFishScript), fmt::arg("name", command.name),
                     fmt::arg("verbs", fmt::format("{}", fmt::join(verbs, " ")))) +
         lines;
}

}  // namespace hanji::cli
