#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/cli/exercises/exercise.h"

namespace hanji::cli {

/// One thing that a check has looked at.
struct Point {
  bool good = false;
  std::string text;  ///< What was seen; of one that is not good: what is missing, and why.
  std::string hint = {};
};
/// What a check says of an exercise: passed if all are good.
using Judgement = std::vector<Point>;

bool passed(const Judgement& judgement);

/// "exercise 4: passed" or "exercise 4: not passed yet", and a line per point; hints below theirs.
std::string to_text(const Exercise& exercise, const Judgement& judgement,
                    int columns = base::kTerminalColumns);

/// A point per gap that is left in the file, none without gaps.
Judgement judge_gaps(const ExerciseFile& file);

/// A folder that a script keeps, and how it was made when the script said something else.
struct KeptFolder {
  std::string_view folder;
  std::string trained_with;  ///< "dp=1, fsdp=4"
  std::string_view script;
  std::string says;
};
/// The point of such a folder, which no other is worth judging beside.
Point judge_kept(const KeptFolder& kept);

/// Compares a number that was given with the one that was found, within `tolerance` of it.
/// `why`: where the right one comes from, for the sentence of both outcomes.
struct Expected {
  std::string_view name;  ///< Name of the answer.
  double value = 0;
  double tolerance = 0.05;  ///< Relative; of kOrder a factor.
  std::string why;
  std::string hint;
};
Point judge_number(const Answers& answers, const Expected& expected);
/// Judges a number as judge_number() does, but right within a factor of `tolerance` either way.
Point judge_order(const Answers& answers, const Expected& expected);

}  // namespace hanji::cli
