#include "hanji/cli/exercises/exercise.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <ranges>

#include "hanji/base/text.h"

namespace hanji::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Cuts the first line off.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void read_task(Exercise& exercise, std::string_view text) {
  exercise.title = take_line(text);
  exercise.chapter = take_line(text);
  exercise.task = text;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char one) {
    return std::islower(one) != 0 || std::isdigit(one) != 0 || one == '_';
  });
}

/// Without the signs of a comment, and without quotes around a value.
std::string_view without_comment(std::string_view line) {
  line = trim(line);
  while (line.starts_with('/') || line.starts_with('#')) line.remove_prefix(1);
  return trim(line);
}

std::string_view without_quotes(std::string_view value) {
  value = trim(value);
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
    return value.substr(1, value.size() - 2);
  }
  return value;
}

}  // namespace

std::vector<Exercise> read_exercises(std::span<const ExerciseFile> files) {
  std::map<int, Exercise> found;
  for (const ExerciseFile& file : files) {
    const auto parts = base::split(file.path, '/');
    Exercise& exercise = found[file.path.front() - '0'];
    exercise.number = file.path.front() - '0';
    if (parts.size() == 3) {
      exercise.solution.push_back({parts[2], file.text});
    } else if (parts[1] == "task.txt") {
      read_task(exercise, file.text);
    } else {
      exercise.files.push_back({parts[1], file.text});
    }
  }
  std::vector<Exercise> all;
  for (Exercise& exercise : found | std::views::values) {
    // CMakeLists.txt is written, too, but is not the one to edit.
    std::ranges::stable_partition(
        exercise.files, [](const ExerciseFile& one) { return !one.path.ends_with(".txt"); });
    for (const ExerciseFile& file :
         exercise.files) {  // what has no gaps is part of the solution as it is
      if (std::ranges::find(exercise.solution, file.path, &ExerciseFile::path) ==
          exercise.solution.end()) {
        exercise.solution.push_back(file);
      }
    }
    all.push_back(std::move(exercise));
  }
  return all;
}

std::vector<Gap> find_gaps(std::string_view text) {
  std::vector<Gap> gaps;
  for (int line = 1; !text.empty(); ++line) {
    const std::string_view one = take_line(text);
    // Words about the gaps name them with a quote.
    if (one.find(kGap) == std::string_view::npos || one.find("`____`") != std::string_view::npos)
      continue;
    gaps.push_back({line, std::string(trim(one))});
  }
  return gaps;
}

Answers::Answers(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = without_comment(take_line(text));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || !is_name(line.substr(0, equals))) continue;
    values_.emplace_back(line.substr(0, equals), without_quotes(line.substr(equals + 1)));
  }
}

std::optional<std::string> Answers::text(std::string_view name) const {
  const auto found = std::ranges::find(values_ | std::views::reverse, name,
                                       [](const auto& one) { return std::string_view(one.first); });
  if (found == values_.rend() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<double> Answers::number(std::string_view name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  double number = 0;
  const char* end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

}  // namespace hanji::cli
