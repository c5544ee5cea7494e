#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "hanji/base/file.h"
#include "hanji/cli/exercises/check.h"
#include "hanji/cli/exercises/exercise.h"
#include "hanji/cli/exercises/judgement.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/stop_signal.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

struct ExerciseOptions {
  std::optional<int64_t> number;
  std::optional<std::string> out;
  bool check = false, solution = false;
};

int list_exercises() {
  std::string text = "Exercises, each of one screen, with gaps to fill in:\n\n";
  for (const Exercise& one : read_exercises()) {
    text += fmt::format("  {}  {}\n     chapter: {}\n", one.number, one.title, one.chapter);
  }
  print_text(text +
                 "\nBegin:  hanji exercise 1\nCheck:  hanji exercise 1 --check\nOurs:   hanji "
                 "exercise 1 --solution\n",
             false);
  return 0;
}

Exercise find_exercise(int64_t number) {
  const auto all = read_exercises();
  const auto found = std::ranges::find(all, number, &Exercise::number);
  if (found != all.end()) return *found;
  throw Error(base::invalid_argument(fmt::format("there is no exercise {}; there are {} to {}",
                                                 number, all.front().number, all.back().number)));
}

/// Named, or that of the exercise below this one, or this one where its file lies here.
fs::path exercise_folder(const ExerciseOptions& options, const Exercise& exercise) {
  if (options.out) return *options.out;
  std::error_code ignored;
  if (fs::exists(exercise.files.front().path, ignored)) return ".";
  return fmt::format("exercise-{}", exercise.number);
}

/// What lies at a path of the exercise.
enum class AtPath { kNothing, kAsGiven, kAsOurs, kEdited };
AtPath what_lies_at(const fs::path& path, std::string_view given, std::string_view ours) {
  const auto text = base::read_file(path);
  if (!text.ok()) return AtPath::kNothing;
  if (*text == ours) return AtPath::kAsOurs;
  return *text == given ? AtPath::kAsGiven : AtPath::kEdited;
}

/// Writes the files with gaps. What the user has edited stays, which is said.
std::string write_gaps(const Exercise& exercise, const fs::path& folder) {
  base::throw_if_error(base::make_directories(folder));
  std::string text;
  for (const ExerciseFile& file : exercise.files) {
    const fs::path path = folder / file.path;
    const AtPath there = what_lies_at(path, file.text, file.text);
    if (there == AtPath::kEdited) {
      text +=
          fmt::format("{} stays as it is: it differs from the one that is given\n", path.string());
      continue;
    }
    if (there == AtPath::kNothing) base::throw_if_error(base::write_file_atomic(path, file.text));
    text +=
        fmt::format("{}{}\n", there == AtPath::kNothing ? "written: " : "there: ", path.string());
  }
  return text;
}

int show_task(const ExerciseOptions& options, const Exercise& exercise) {
  const fs::path folder = exercise_folder(options, exercise);
  std::string task(exercise.task);
  constexpr std::string_view kPrefix = "{prefix}";
  for (size_t at; (at = task.find(kPrefix)) != std::string::npos;) {
    task.replace(at, kPrefix.size(), package_prefix().string());
  }
  std::cout << fmt::format("Exercise {}: {}\nChapter: {}\n\n{}\n", exercise.number, exercise.title,
                           exercise.chapter, task)
            << write_gaps(exercise, folder)
            << fmt::format("check: hanji exercise {} --check{}\n", exercise.number,
                           options.out ? " --out " + *options.out : "")
            << std::flush;
  return 0;
}

/// Errors  throws Error: kInvalidArgument, naming every file that the user has edited; nothing is written then.
void write_solution(const Exercise& exercise, const fs::path& folder) {
  OptionMistakes edited;
  for (const ExerciseFile& file : exercise.files) {
    const auto ours = std::ranges::find(exercise.solution, file.path, &ExerciseFile::path);
    if (what_lies_at(folder / file.path, file.text, ours->text) == AtPath::kEdited) {
      edited.add(fmt::format(
          "{}: it has been edited, and ours would take its place; name another folder by --out",
          (folder / file.path).string()));
    }
  }
  edited.throw_if_any();
  base::throw_if_error(base::make_directories(folder));
  for (const ExerciseFile& file : exercise.solution) {
    base::throw_if_error(base::write_file_atomic(folder / file.path, file.text));
    std::cout << "written: " << (folder / file.path).string() << "\n";
  }
}

int show_solution(const ExerciseOptions& options, const Exercise& exercise) {
  if (options.out) {
    write_solution(exercise, *options.out);
    return 0;
  }
  const auto name = exercise.files.front().path;
  std::cout << std::ranges::find(exercise.solution, name, &ExerciseFile::path)->text << std::flush;
  return 0;
}

int check_and_tell(const ExerciseOptions& options, const Exercise& exercise) {
  auto signals = train::StopSignal::create().or_throw();
  CommandRunner runner([&] { return signals.poll(); });
  try {
    const Judgement judgement =
        check_exercise(exercise, exercise_folder(options, exercise), runner);
    std::cout << to_text(exercise, judgement, output_columns()) << std::flush;
    return passed(judgement) ? 0 : kDiffers;
  } catch (const Error&) {
    if (runner.stop_signal() == 0) throw;
    return stop_code(runner.stop_signal());
  }
}

int run_exercise(const ExerciseOptions& options) {
  if (!options.number) {
    if (options.check || options.solution || options.out) {
      throw Error(base::invalid_argument(
          "--check, --solution and --out are of one exercise; name it: hanji exercise 1 --check"));
    }
    return list_exercises();
  }
  const Exercise exercise = find_exercise(*options.number);
  if (options.check) return check_and_tell(options, exercise);
  return options.solution ? show_solution(options, exercise) : show_task(options, exercise);
}

}  // namespace

void add_exercise(Verb command) {
  const Verb verb = command.add_verb(
      "exercise", "Learn by doing: six exercises with gaps to fill in, and their checks");
  auto options = std::make_shared<ExerciseOptions>();
  verb.add_option("number", &options->number,
                  "says the task and writes its files; without it all are listed")
      .type_name("N");
  const Option check =
      verb.add_flag("--check", &options->check,
                    "says passed, or what is missing and why; exit code 7 until it is passed");
  verb.add_flag("--solution", &options->solution, "shows ours, or with --out writes it")
      .excludes(check);
  verb.add_option("--out", &options->out,
                  "its folder; default: this one if its file lies here, else exercise-N")
      .type_name("DIR");
  verb.on_chosen([=] { return run_exercise(*options); });
}

}  // namespace hanji::cli
