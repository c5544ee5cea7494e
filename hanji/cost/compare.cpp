#include "hanji/cost/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace hanji::cost {
namespace {

using schedule::Algorithm;
using schedule::ListShape;
using schedule::StepList;

constexpr double kEqual = 1e-9;    // relative: times that differ less are equal
constexpr double kBorder = 1.005;  // how exactly the borders between sizes are found
constexpr int64_t kLargestCompared = 1'000'000'000;  // bytes up to which borders are looked for

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

ListShape shape_of(const Question& question, int segments) {
  return {question.root, std::max(1, segments), std::max(1, question.ranks_per_host), {}};
}

int segments_of(const Algorithm& algorithm, const Question& question) {
  if (!algorithm.is_pipelined) return 0;
  return question.segments > 0 ? question.segments : best_segments(algorithm, question);
}

// Of the rank that sends the most; a few ranks stand for all of a symmetric list.
void count_traffic(Answer& answer, const Question& question) {
  const auto add = [&](const StepList& list, int rank) {
    answer.steps = std::max(answer.steps, std::ssize(list.per_rank[rank]));
    answer.sent_bytes = std::max(answer.sent_bytes, schedule::traffic_of(list, rank).wire);
  };
  if (answer.list.kept.is_whole()) {
    for (int rank = 0; rank < question.ranks; ++rank) add(answer.list, rank);
    return;
  }
  const int last = question.ranks - 1;
  for (const int rank : std::set{0, 1, last / 2, last - 1, last, question.root}) {
    ListShape shape = shape_of(question, answer.segments);
    shape.kept.rank = rank;
    add(answer.algorithm.make(question.ranks, count_of(question), shape), rank);
  }
}

enum class Lists : bool { kWhole, kLongestPath };

Result<Answer> simulated(const Algorithm& algorithm, const Question& question, Lists lists) {
  Answer result;
  result.algorithm = algorithm;
  result.segments = segments_of(algorithm, question);
  ListShape shape = shape_of(question, result.segments);
  if (lists == Lists::kLongestPath) shape.kept = {.rank = 0, .longest_path = true};
  try {
    result.list = algorithm.make(question.ranks, count_of(question), shape);
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
  HANJI_ASSIGN_OR_RETURN(result.timeline, simulate(result.list, 1, question.network));
  return result;
}

// Of comparisons, where nobody asks for traffic.
Result<Answer> timed(const Algorithm& algorithm, const Question& question) {
  const bool many = question.ranks > kMaxWholeRanks;
  return simulated(algorithm, question,
                   many && algorithm.is_symmetric ? Lists::kLongestPath : Lists::kWhole);
}

std::vector<Algorithm> candidates(const Question& question) {
  std::vector<Algorithm> found;
  for (const Algorithm& algorithm : schedule::message_algorithms(question.routine)) {
    if (is_candidate(algorithm, question)) found.push_back(algorithm);
  }
  return found;
}

Result<int64_t> steps_of(const Algorithm& algorithm, const Question& question, int segments) {
  try {
    return num_steps(algorithm, question.ranks, count_of(question), shape_of(question, segments));
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
}

// The fastest first. Equal times may differ by rounding: each moves up past those that are slower by
// more.
Result<std::vector<Answer>> by_time(const std::vector<Algorithm>& algorithms,
                                    const Question& question) {
  std::vector<Answer> sorted;
  for (const Algorithm& algorithm : algorithms) {
    HANJI_ASSIGN_OR_RETURN(Answer one, timed(algorithm, question));
    const auto at = std::find_if(sorted.begin(), sorted.end(), [&](const Answer& other) {
      return one.seconds() < other.seconds() * (1 - kEqual);
    });
    sorted.insert(at, std::move(one));
  }
  return sorted;
}

// The fastest of them for this size.
Result<Algorithm> winner(const std::vector<Algorithm>& algorithms, Question question,
                         int64_t bytes) {
  question.bytes = bytes;
  HANJI_ASSIGN_OR_RETURN(const std::vector<Answer> all, by_time(algorithms, question));
  return all.front().algorithm;
}

// Adds the borders between low, whose winner is known, and high; `fastest` says who wins a size.
Status find_borders(const auto& fastest, const Crossover& low, const Crossover& high,
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
  HANJI_ASSIGN_OR_RETURN(between.algorithm, fastest(middle));
  HANJI_RETURN_IF_ERROR(find_borders(fastest, low, between, found));
  return find_borders(fastest, between, high, found);
}

}  // namespace

int best_segments(const Algorithm& algorithm, const Question& question) {
  const int fill = rounds_to_fill(algorithm, question.ranks) - 1;
  const auto bytes = static_cast<double>(question.bytes);
  const double wanted = question.network.latency_seconds == 0
                            ? kSegmentsWithoutLatency
                            : std::sqrt(fill * bytes / question.network.bytes_per_second /
                                        question.network.latency_seconds);
  const double most = std::min<double>(kMaxSegments, bytes);
  return static_cast<int>(std::max(1.0, std::round(std::min(wanted, most))));
}

std::vector<LeftOut> left_out(const Question& question) {
  std::vector<LeftOut> found;
  if (question.ranks <= kMaxWholeRanks) return found;
  Question largest = question;
  largest.bytes = std::max(largest.bytes, kLargestCompared);
  const int segments = question.segments > 0 ? question.segments : kMaxSegments;
  for (const Algorithm& algorithm : candidates(question)) {
    if (algorithm.is_symmetric) continue;
    const auto steps = steps_of(algorithm, largest, segments);
    if (steps.ok() && *steps > kMaxComparedSteps) found.push_back({algorithm, *steps});
  }
  return found;
}

Result<Answer> answer(const Algorithm& algorithm, const Question& question) {
  HANJI_ASSIGN_OR_RETURN(const int64_t steps,
                         steps_of(algorithm, question, segments_of(algorithm, question)));
  const bool too_long = steps > kMaxSteps;
  if (too_long && !algorithm.is_symmetric) {
    return base::invalid_argument(fmt::format(
        "{} by {} over {} ranks has {} steps, but at most {} are simulated, which takes 10 s and 1 "
        "GB; take fewer ranks{}, or another algorithm",
        name_of(question.routine), algorithm.name, question.ranks, steps, kMaxSteps,
        algorithm.is_pipelined ? " or segments" : ""));
  }
  HANJI_ASSIGN_OR_RETURN(Answer result, simulated(algorithm, question,
                                                  too_long ? Lists::kLongestPath : Lists::kWhole));
  count_traffic(result, question);
  return result;
}

Result<Answer> compared(const Algorithm& algorithm, const Question& question) {
  HANJI_ASSIGN_OR_RETURN(Answer result, timed(algorithm, question));
  count_traffic(result, question);
  return result;
}

Result<std::vector<Answer>> answers(const Question& question) {
  std::vector<Algorithm> algorithms;
  for (const Algorithm& algorithm : candidates(question)) {
    HANJI_ASSIGN_OR_RETURN(const int64_t steps,
                           steps_of(algorithm, question, segments_of(algorithm, question)));
    if (algorithm.is_symmetric || steps <= kMaxSteps) algorithms.push_back(algorithm);
  }
  HANJI_ASSIGN_OR_RETURN(std::vector<Answer> all, by_time(algorithms, question));
  if (all.empty()) {
    return base::unsupported(
        fmt::format("{} has no algorithm that sends messages", name_of(question.routine)));
  }
  for (Answer& one : all) count_traffic(one, question);
  return all;
}

Result<std::vector<Crossover>> crossovers(Question question, int64_t up_to) {
  std::vector<Algorithm> algorithms = candidates(question);
  for (const LeftOut& one : left_out(question)) {
    std::erase_if(algorithms,
                  [&](const Algorithm& other) { return other.name == one.algorithm.name; });
  }
  const auto fastest = [&](int64_t bytes) { return winner(algorithms, question, bytes); };
  Crossover low{1, {}};
  HANJI_ASSIGN_OR_RETURN(low.algorithm, fastest(1));
  std::vector<Crossover> found = {low};
  for (int64_t bytes = 4; bytes / 4 < up_to; bytes *= 4) {
    Crossover high{std::min(bytes, up_to), {}};
    HANJI_ASSIGN_OR_RETURN(high.algorithm, fastest(high.from_bytes));
    HANJI_RETURN_IF_ERROR(find_borders(fastest, low, high, found));
    low = high;
  }
  return found;
}

Result<std::optional<int64_t>> crossover(const Algorithm& first, const Algorithm& second,
                                         Question question, int64_t up_to) {
  const auto first_wins = [&](int64_t bytes) -> Result<bool> {
    question.bytes = bytes;
    HANJI_ASSIGN_OR_RETURN(const Answer a, timed(first, question));
    HANJI_ASSIGN_OR_RETURN(const Answer b, timed(second, question));
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
