#include "hanji/cost/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace hanji::cost {
namespace {

using schedule::Algorithm;
using schedule::Routine;
using schedule::StepKind;

constexpr double kEqual = 1e-9;    // relative: times that differ less are equal
constexpr double kBorder = 1.005;  // how exactly the borders between sizes are found

// Elements (bytes) of the list's count.
int64_t count_of(const Question& question) {
  if (!has_shares(question.routine)) return question.bytes;
  return question.bytes / question.ranks + (question.bytes % question.ranks != 0);
}

// Rounds until the last rank of a pipeline has its first segment.
int rounds_to_fill(const Algorithm& algorithm, int ranks) {
  if (algorithm.name == "chain") return ranks - 1;
  return std::bit_width(static_cast<unsigned>(ranks - 1));  // the depth of a binary tree
}

bool is_candidate(const Algorithm& algorithm, const Question& question) {
  return !algorithm.is_hierarchical || question.ranks_per_host > 0;
}

// The fastest for this size.
Result<Algorithm> winner(Question question, int64_t bytes) {
  question.bytes = bytes;
  HANJI_ASSIGN_OR_RETURN(std::vector<Answer> all, answers(question));
  return all.front().algorithm;
}

// Adds the borders between low, whose winner is known, and high.
Status find_borders(const Question& question, const Crossover& low, const Crossover& high,
                    std::vector<Crossover>& found) {
  if (low.algorithm.name == high.algorithm.name) return {};
  const auto is_near = [](int64_t a, int64_t b) {
    return b - a <= 1 || static_cast<double>(b) <= static_cast<double>(a) * kBorder;
  };
  if (is_near(low.from_bytes, high.from_bytes)) {
    found.push_back(high);
    return {};
  }
  const int64_t middle = low.from_bytes + (high.from_bytes - low.from_bytes) / 2;
  Crossover between{middle, {}};
  HANJI_ASSIGN_OR_RETURN(between.algorithm, winner(question, middle));
  HANJI_RETURN_IF_ERROR(find_borders(question, low, between, found));
  return find_borders(question, between, high, found);
}

}  // namespace

int64_t Answer::sent_bytes() const {
  int64_t most = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    most = std::max(most, schedule::traffic_of(list, rank).wire);
  }
  return most;
}

int best_segments(const Algorithm& algorithm, const Question& question) {
  const int fill = rounds_to_fill(algorithm, question.ranks) - 1;
  const auto bytes = static_cast<double>(question.bytes);
  const double wanted = question.network.latency_seconds == 0
                            ? kSegmentsWithoutLatency
                            : std::sqrt(fill * bytes / question.network.bytes_per_second /
                                        question.network.latency_seconds);
  const double most = std::min<double>(kMostSegments, bytes);
  return static_cast<int>(std::max(1.0, std::round(std::min(wanted, most))));
}

Result<Answer> answer(const Algorithm& algorithm, const Question& question) {
  Answer result;
  result.algorithm = algorithm;
  if (algorithm.is_pipelined) {
    result.segments =
        question.segments > 0 ? question.segments : best_segments(algorithm, question);
  }
  try {
    result.list = algorithm.make(
        question.ranks, count_of(question),
        {question.root, std::max(1, result.segments), std::max(1, question.ranks_per_host)});
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
  HANJI_ASSIGN_OR_RETURN(result.timeline, simulate(result.list, 1, question.network));
  return result;
}

Result<std::vector<Answer>> answers(const Question& question) {
  std::vector<Answer> all;
  for (const Algorithm& algorithm : schedule::message_algorithms(question.routine)) {
    if (!is_candidate(algorithm, question)) continue;
    HANJI_ASSIGN_OR_RETURN(Answer one, answer(algorithm, question));
    all.push_back(std::move(one));
  }
  if (all.empty()) {
    return base::unsupported(
        fmt::format("{} has no algorithm that sends messages", name_of(question.routine)));
  }
  // Equal times may differ by rounding: each moves up past those that are slower by more.
  std::vector<Answer> sorted;
  for (Answer& one : all) {
    const auto at = std::find_if(sorted.begin(), sorted.end(), [&](const Answer& other) {
      return one.seconds() < other.seconds() * (1 - kEqual);
    });
    sorted.insert(at, std::move(one));
  }
  return sorted;
}

Result<std::vector<Crossover>> crossovers(Question question, int64_t up_to) {
  Crossover low{1, {}};
  HANJI_ASSIGN_OR_RETURN(low.algorithm, winner(question, 1));
  std::vector<Crossover> found = {low};
  for (int64_t bytes = 4; bytes / 4 < up_to; bytes *= 4) {
    Crossover high{std::min(bytes, up_to), {}};
    HANJI_ASSIGN_OR_RETURN(high.algorithm, winner(question, high.from_bytes));
    HANJI_RETURN_IF_ERROR(find_borders(question, low, high, found));
    low = high;
  }
  return found;
}

Result<std::optional<int64_t>> crossover(const Algorithm& first, const Algorithm& second,
                                         Question question, int64_t up_to) {
  const auto first_wins = [&](int64_t bytes) -> Result<bool> {
    question.bytes = bytes;
    HANJI_ASSIGN_OR_RETURN(const Answer a, answer(first, question));
    HANJI_ASSIGN_OR_RETURN(const Answer b, answer(second, question));
    return a.seconds() < b.seconds() * (1 - kEqual);
  };
  int64_t low = 1, high = up_to;
  HANJI_ASSIGN_OR_RETURN(const bool wins_small, first_wins(low));
  HANJI_ASSIGN_OR_RETURN(const bool wins_large, first_wins(high));
  if (!wins_small || wins_large) return std::optional<int64_t>();
  while (high - low > 1 && static_cast<double>(high) > static_cast<double>(low) * kBorder) {
    const int64_t middle = low + (high - low) / 2;
    HANJI_ASSIGN_OR_RETURN(const bool wins, first_wins(middle));
    (wins ? low : high) = middle;
  }
  return std::optional(high);
}

}  // namespace hanji::cost
