#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hanji::cli {

/// A file of examples/exercises/, which the build copies into the command.
struct ExerciseFile {
  std::string_view path;  ///< Below that folder: "4_overhead/solution/overhead.sh".
  std::string_view text;
};

/// All of them, ascending by path. Its source is generated.
std::span<const ExerciseFile> exercise_files();

/// One exercise: what to do, the files to fill in, and ours.
struct Exercise {
  int number = 0;
  std::string_view title;    ///< "measure links", for the list.
  std::string_view chapter;  ///< What to read: "docs/learn/1_interconnects.md".
  std::string_view task;     ///< For people, without title and chapter.
  std::vector<ExerciseFile>
      files;  ///< With gaps; paths are names alone. The first is the one to edit.
  std::vector<ExerciseFile> solution;  ///< The same names, without gaps.
};

/// The exercises in `files`, ascending by number.
std::vector<Exercise> read_exercises(std::span<const ExerciseFile> files = exercise_files());

/// Marks what the reader fills in.
inline constexpr std::string_view kGap = "____";

/// A line of a file that still has a gap.
struct Gap {
  int line = 0;  ///< From 1.
  std::string text;
};
std::vector<Gap> find_gaps(std::string_view text);

/// What lines NAME=VALUE say, and those of comments ("// NAME=VALUE", "# NAME=VALUE"). The last of a name counts.
class Answers {
 public:
  explicit Answers(std::string_view text);

  std::optional<std::string> text(std::string_view name) const;
  /// Nothing where there is none, or one that is no number.
  std::optional<double> number(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace hanji::cli
