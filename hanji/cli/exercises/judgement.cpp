#include "hanji/cli/exercises/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "hanji/base/text.h"

namespace hanji::cli {
namespace {

/// Why an answer cannot be compared_with at all.
std::optional<Point> judge_form(const Answers& answers, const Expected& expected) {
  const auto text = answers.text(expected.name);
  if (!text) {
    return Point{false,
                 fmt::format("{}: no line {}=VALUE was printed", expected.name, expected.name),
                 expected.hint};
  }
  if (answers.number(expected.name)) return std::nullopt;
  return Point{false, fmt::format("{}={} is no number", expected.name, *text), expected.hint};
}

Point compared_with(const Expected& expected, double given, bool is_right) {
  if (is_right) return {true, fmt::format("{}={:.10g}; {}", expected.name, given, expected.why)};
  return {false, fmt::format("{}={:.10g} is not right: {}", expected.name, given, expected.why),
          expected.hint};
}

}  // namespace

bool passed(const Judgement& judgement) {
  return !judgement.empty() && std::ranges::all_of(judgement, &Point::good);
}

std::string to_text(const Exercise& exercise, const Judgement& judgement, int columns) {
  std::string text = fmt::format("exercise {}: {}\n", exercise.number,
                                 passed(judgement) ? "passed" : "not passed yet");
  for (const Point& point : judgement) {
    text +=
        base::wrap(fmt::format("  {}  {}", point.good ? "yes" : "NO ", point.text), columns, 5) +
        "\n";
    if (!point.hint.empty()) {
      text += base::wrap(fmt::format("       hint: {}", point.hint), columns, 2) + "\n";
    }
  }
  if (passed(judgement)) return text;
  return text +
         base::wrap(fmt::format("read {}; ours: hanji exercise {} --solution", exercise.chapter,
                                exercise.number),
                    columns) +
         "\n";
}

Judgement judge_gaps(const ExerciseFile& file) {
  Judgement judgement;
  for (const Gap& gap : find_gaps(file.text)) {
    judgement.push_back({false,
                         fmt::format("{}:{}: a gap is left: {}", file.path, gap.line, gap.text),
                         "put your answer or command in the place of ____"});
  }
  return judgement;
}

Point judge_kept(const KeptFolder& kept) {
  return {false,
          fmt::format("{}/ was trained with {}, but {} says {}", kept.folder, kept.trained_with,
                      kept.script, kept.says),
          fmt::format("rm -r {}, and run the script again", kept.folder)};
}

Point judge_number(const Answers& answers, const Expected& expected) {
  if (auto form = judge_form(answers, expected)) return *std::move(form);
  const double given = *answers.number(expected.name);
  return compared_with(
      expected, given,
      std::abs(given - expected.value) <= expected.tolerance * std::abs(expected.value));
}

Point judge_order(const Answers& answers, const Expected& expected) {
  if (auto form = judge_form(answers, expected)) return *std::move(form);
  const double given = *answers.number(expected.name);
  return compared_with(
      expected, given,
      given > 0 && expected.value > 0 &&
          std::abs(std::log(given / expected.value)) <= std::log(expected.tolerance));
}

}  // namespace hanji::cli
