#include "hanji/cli/exercises/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "hanji/base/file.h"
#include "hanji/base/text.h"
#include "hanji/cli/exercises/build_program.h"
#include "hanji/cli/exercises/facts.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono_literals::operator""s;

constexpr auto kScriptLimit = 300s;
constexpr auto kProgramLimit = 30s;
constexpr int kMeasurements = 3;

struct CheckedPlace {
  const Exercise& exercise;
  fs::path folder;
  std::string text;  ///< Content of the file that the user edits.
  CommandRunner& runner;
};

void announce(const std::string& text) { std::cerr << "hanji: " << text << std::endl; }

std::string edited_file(const Exercise& exercise) {
  return std::string(exercise.files.front().path);
}

/// A point that says why there is nothing to judge.
Judgement nothing(std::string text, std::string hint) {
  return {{false, std::move(text), std::move(hint)}};
}

/// Runs the script; what it printed, or why not.
struct ScriptEnd {
  std::string output;
  Judgement failed;
};
ScriptEnd run_script(const CheckedPlace& place) {
  const std::string name = edited_file(place.exercise);
  announce(fmt::format("running sh {} in {}, at most {} minutes", name, place.folder.string(),
                       kScriptLimit / 60s));
  const CommandEnd end = place.runner.run({"sh", name}, place.folder, kScriptLimit);
  if (end.timed_out) {
    return {"",
            nothing(fmt::format("sh {} did not end within {} minutes", name, kScriptLimit / 60s),
                    "run it by hand, and see where it stays")};
  }
  if (end.exit_code != 0) {
    return {"", nothing(fmt::format("sh {} ended with code {}: {}", name, end.exit_code,
                                    last_lines(end.output, 4)),
                        "run it by hand: its last lines say why")};
  }
  return {end.output, {}};
}

template <class Facts>
Judgement judge_files(const CheckedPlace& place, Result<Facts> (*read)(const fs::path&),
                      Judgement (*judge)(const Answers&, const Facts&)) {
  const ScriptEnd end = run_script(place);
  if (!end.failed.empty()) return end.failed;
  const Result<Facts> facts = read(place.folder);
  if (!facts.ok()) return nothing(facts.status().message(), "the script makes it; run it by hand");
  return judge(Answers(end.output), *facts);
}

/// Other processes slow a measurement down at times, the script's or ours: what was right once is right.
Judgement check_link_exercise(const CheckedPlace& place) {
  Judgement best;
  for (int round = 0; round < kMeasurements && !passed(best); ++round) {
    const ScriptEnd end = run_script(place);
    if (!end.failed.empty()) return end.failed;
    announce("measuring the same again, some seconds");
    const Judgement judgement =
        judge_links(Answers(end.output), measure_links(place.folder, place.runner));
    if (best.empty()) best = judgement;
    for (size_t i = 0; i < best.size(); ++i) {
      if (!best[i].good) best[i] = judgement[i];
    }
  }
  return best;
}

/// Compiles the user's program; a judgement if it does not.
Judgement compile(const CheckedPlace& place, const fs::path& source, const std::string& target,
                  const std::string& what) {
  announce("compiling " + what + ", about half a minute");
  const auto why = build_program(source, place.folder / ".check" / what, target, place.runner);
  if (!why) return {};
  return nothing(
      what + " does not compile: " + *why,
      std::string("put a value or call of C++ in the place of each ____") +
          (what == "accumulate" ? "; the chapter's section \"Gradient accumulation\" names the call"
                                : ""));
}

void need_compiler(const Exercise& exercise) {
  const std::string missing = missing_for_programs(package_prefix());
  if (missing.empty()) return;
  throw Error(
      base::not_found(fmt::format("exercise {} compiles a program: {}", exercise.number, missing)));
}

CommandEnd run_two_ranks(const CheckedPlace& place, const fs::path& program,
                         const std::string& argument, std::chrono::seconds limit) {
  announce(fmt::format("running {} on two ranks, at most {} s", program.filename().string(),
                       limit.count()));
  const std::string hanji = base::executable_path().or_throw();
  return place.runner.run({hanji, "run", "--ranks", "2", program, argument},
                          place.folder / ".check", limit);
}

/// Lines "rank R WORD ..." of a program, by rank.
std::vector<std::istringstream> lines_of_ranks(const std::string& output, const std::string& word) {
  std::vector<std::istringstream> lines;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string begin = fmt::format("rank {} {} ", rank, word);
    const size_t at = output.find(begin);
    if (at == std::string::npos) break;
    lines.emplace_back(output.substr(at + begin.size(), output.find('\n', at) - at - begin.size()));
  }
  return lines;
}

Judgement check_accumulation(const CheckedPlace& place) {
  if (auto failed = compile(place, place.folder, "accumulate", "accumulate"); !failed.empty())
    return failed;
  const CommandEnd end =
      run_two_ranks(place, place.folder / ".check/accumulate/accumulate", "", kProgramLimit);
  if (end.timed_out || end.exit_code != 0) {
    return nothing(fmt::format("the program {}: {}",
                               end.timed_out ? "did not end in time"
                                             : fmt::format("ended with code {}", end.exit_code),
                               last_lines(end.output, 4)),
                   "both ranks must make the same calls");
  }
  std::vector<AccumulationRank> ranks;
  for (std::istringstream& line : lines_of_ranks(end.output, "calls")) {
    AccumulationRank& rank = ranks.emplace_back();
    std::string word;
    line >> rank.calls >> word;
    for (double weight = 0; line >> weight;) rank.weights.push_back(weight);
  }
  return judge_accumulation({}, ranks);
}

/// Writes the program as it was given beside its CMakeLists.txt, if it is not there yet: it is compiled once.
fs::path write_original(const CheckedPlace& place) {
  const fs::path folder = place.folder / ".check" / "given";
  base::throw_if_error(base::make_directories(folder));
  for (const ExerciseFile& file : place.exercise.files) {
    const fs::path path = folder / file.path;
    const auto there = base::read_file(path);
    if (there.ok() && *there == file.text) continue;
    base::throw_if_error(base::write_file_atomic(path, file.text));
  }
  return folder;
}

/// Removes what ranks 0 have saved in earlier checks: a process with the number of that one would find it.
void remove_saved(const fs::path& folder) {
  for (const fs::path& file : base::list_files(folder).or_throw()) {
    if (file.filename().string().starts_with("trained-"))
      base::throw_if_error(base::remove_tree(file));
  }
}

Judgement check_hang(const CheckedPlace& place) {
  if (auto failed = compile(place, place.folder, "hang", "hang"); !failed.empty()) return failed;
  const fs::path original = write_original(place);
  if (auto failed = compile(place, original, "hang", "hang-as-given"); !failed.empty())
    return failed;
  remove_saved(place.folder / ".check");
  HangFacts facts;
  facts.verdict =
      run_two_ranks(place, place.folder / ".check/hang-as-given/hang", "2", kProgramLimit).output;
  const CommandEnd end =
      run_two_ranks(place, place.folder / ".check/hang/hang", "4", kProgramLimit);
  facts.timed_out = end.timed_out;
  facts.exit_code = end.exit_code;
  const size_t verdict = end.output.find("absent rank");
  facts.last_words = verdict == std::string::npos
                         ? last_lines(end.output, 3)
                         : end.output.substr(0, end.output.find('\n', verdict));
  for (std::istringstream& line : lines_of_ranks(end.output, "total"))
    line >> facts.totals.emplace_back();
  return judge_hang(Answers(place.text), facts);
}

}  // namespace

Judgement check_exercise(const Exercise& exercise, const fs::path& folder, CommandRunner& runner) {
  const std::string name = edited_file(exercise);
  const auto text = base::read_file(folder / name);
  if (!text.ok()) {
    throw Error(
        base::not_found(fmt::format("{}: not there; write it by: hanji exercise {} --out {}",
                                    (folder / name).string(), exercise.number, folder.string())));
  }
  const bool is_program = name.ends_with(".cpp");
  if (is_program) need_compiler(exercise);
  if (auto gaps = judge_gaps({name, *text}); !gaps.empty()) return gaps;
  const CheckedPlace place{exercise, fs::absolute(folder), *text, runner};
  switch (exercise.number) {
    case 1: return check_link_exercise(place);
    case 2: return check_accumulation(place);
    case 3: return judge_files(place, read_hybrid_facts, judge_hybrid);
    case 4: return judge_files(place, read_overhead_facts, judge_overhead);
    case 5: return judge_files(place, read_images_facts, judge_images);
    default: return check_hang(place);
  }
}

}  // namespace hanji::cli
