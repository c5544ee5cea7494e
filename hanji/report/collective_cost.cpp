#include "hanji/report/collective_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/schedule/linear.h"

namespace hanji::report {
namespace {

using schedule::StepList;

constexpr int64_t kElementBytes = 4;  // in shared memory
constexpr double kBorder = 1.005;     // how exactly the borders between sizes are found

int64_t most_steps(const StepList& list) {
  size_t most = 0;
  for (const auto& steps : list.per_rank) most = std::max(most, steps.size());
  return static_cast<int64_t>(most);
}

std::string describe(const cost::Network& network) {
  std::string text = fmt::format("over links of {}/s each way, ",
                                 base::format_bytes(std::llround(network.bytes_per_second)));
  text += network.latency_seconds == 0
              ? "no latency"
              : exact_seconds(network.latency_seconds) + " latency per message";
  if (std::isfinite(network.reduce_bytes_per_second)) {
    text += fmt::format(", sums of {}/s",
                        base::format_bytes(std::llround(network.reduce_bytes_per_second)));
  }
  return text;
}

std::string describe(const cost::Rates& rates, int ranks) {
  if (rates.fitted && rates.fitted->ranks == ranks) {
    return fmt::format("in shared memory, by costs fitted to calls of {} on {} processors",
                       base::counted(ranks, "rank"), rates.fitted->processors);
  }
  return fmt::format("in shared memory, {}/s together, {} to meet",
                     base::format_bytes(std::llround(rates.memory_bytes_per_second)),
                     exact_seconds(rates.sync_seconds));
}

cost::Query query_of(const cost::Question& question, int64_t bytes) {
  const int64_t elements = (bytes + kElementBytes - 1) / kElementBytes;
  const int64_t shares = has_shares(question.routine) ? question.ranks : 1;
  return {.routine = question.routine,
          .element_bytes = kElementBytes,
          .ranks = priced_ranks(question),
          .count = (elements + shares - 1) / shares,
          .root = question.root};
}

// Adds the borders between low, which is in `found`, and high; `winner` names the fastest for a size.
void find_borders(const auto& winner, const FastestFrom& low, const FastestFrom& high,
                  std::vector<FastestFrom>& found) {
  if (low.algorithm == high.algorithm) return;
  const auto near = static_cast<int64_t>(static_cast<double>(low.from_bytes) * kBorder);
  if (high.from_bytes <= std::max(low.from_bytes + kElementBytes, near)) {
    found.push_back(high);
    return;
  }
  const int64_t at = low.from_bytes + (high.from_bytes - low.from_bytes) / 2;
  const FastestFrom middle{at, winner(at)};
  find_borders(winner, low, middle, found);
  find_borders(winner, middle, high, found);
}

Result<CollectiveCost> send_on_network(const cost::Question& question) {
  const StepList list = schedule::send_message(question.bytes);
  HANJI_ASSIGN_OR_RETURN(const cost::Timeline timeline, simulate(list, 1, question.network));
  CollectiveCost result;
  result.routine = question.routine;
  result.bytes = question.bytes;
  result.ranks = priced_ranks(question);
  result.where = describe(question.network);
  result.rows.push_back({.algorithm = list.algorithm,
                         .steps = most_steps(list),
                         .moved_bytes = question.bytes,
                         .terms = timeline.terms,
                         .formula = "a + S b"});
  result.sizes = {{1, list.algorithm}};
  return result;
}

// Who is taken for a size, by the price or by what the engine asks of a send.
void find_sizes(const cost::Question& question, const cost::Rates& rates, CollectiveCost& result) {
  const cost::Query asked = query_of(question, question.bytes);
  cost::Chooser chooser(rates);
  const bool is_send = question.routine == schedule::Routine::kSend;
  if (is_send) result.chosen = chooser.select(asked).why;
  const auto winner = [&](int64_t bytes) {
    const cost::Query query = query_of(question, bytes);
    return is_send ? chooser.select(query).in_heap->algorithm
                   : candidates_for(query, rates).front().list->algorithm;
  };
  FastestFrom low{kElementBytes, winner(kElementBytes)};
  result.sizes = {low};
  for (int64_t bytes = 4 * kElementBytes; bytes <= kLargestSizeInMemory; bytes *= 4) {
    const FastestFrom high{bytes, winner(bytes)};
    find_borders(winner, low, high, result.sizes);
    low = high;
  }
}

}  // namespace

int priced_ranks(const cost::Question& question) {
  return question.routine == schedule::Routine::kSend ? 2 : question.ranks;
}

Result<CollectiveCost> cost_on_network(const cost::Question& question) {
  if (question.routine == schedule::Routine::kSend) return send_on_network(question);
  if (question.routine == schedule::Routine::kBarrier) {
    return base::unsupported(
        "between hosts a barrier sends nothing of its own: ranks have met when they have compared "
        "their calls; leave out --bandwidth, --latency and --reduce");
  }
  CollectiveCost result{
      question.routine, question.bytes, question.ranks, describe(question.network), {}, {}, {}, {}};
  HANJI_ASSIGN_OR_RETURN(const auto answers, cost::answers(question));
  for (const cost::Answer& one : answers) {
    result.rows.push_back({std::string(one.algorithm.name),
                           one.segments,
                           one.steps,
                           one.sent_bytes,
                           one.timeline.terms,
                           std::string(one.algorithm.seconds),
                           {}});
  }
  for (const cost::LeftOut& one : cost::left_out(question)) {
    result.left_out.push_back({std::string(one.algorithm.name), one.steps});
  }
  cost::Question sized = question;
  sized.segments = 0;
  if (sized.network.latency_seconds == 0) {
    sized.network.latency_seconds = kExampleLatency;
    result.sizes_where = describe(sized.network);
  }
  HANJI_ASSIGN_OR_RETURN(const auto sizes, cost::crossovers(sized, kLargestSize));
  for (const cost::Crossover& one : sizes) {
    result.sizes.push_back({one.from_bytes, std::string(one.algorithm.name)});
  }
  return result;
}

Status check_in_memory(const cost::Question& question) {
  if (question.routine == schedule::Routine::kTreeReduce) {
    return base::unsupported(fmt::format("{} is not priced by size", name_of(question.routine)));
  }
  if (priced_ranks(question) > base::kMaxRanksPerHost || question.bytes > kMaxBytesInMemory) {
    return base::invalid_argument(fmt::format(
        "{} and {}; at most {} and {} are priced in shared memory; for ranks "
        "on several hosts add --bandwidth, such as 10GB/s",
        base::counted(question.ranks, "rank"), base::format_bytes(question.bytes),
        base::counted(base::kMaxRanksPerHost, "rank"), base::format_bytes(kMaxBytesInMemory)));
  }
  return {};
}

Result<CollectiveCost> cost_in_memory(const cost::Question& question, const cost::Rates& rates) {
  HANJI_RETURN_IF_ERROR(check_in_memory(question));
  CollectiveCost result;
  result.routine = question.routine;
  result.bytes = question.bytes;
  result.ranks = priced_ranks(question);
  result.where = describe(rates, result.ranks);
  try {
    for (const auto& one : candidates_for(query_of(question, question.bytes), rates)) {
      result.rows.push_back({one.list->algorithm, 0, most_steps(*one.list),
                             traffic_bytes(*one.list, kElementBytes),
                             cost::price_terms(*one.list, kElementBytes, rates), "",
                             cost::price_parts(*one.list, kElementBytes, rates)});
    }
    if (question.routine != schedule::Routine::kBarrier) find_sizes(question, rates, result);
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
  return result;
}

std::string exact_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds >= 0.99995) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 0.99995e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  if (seconds >= 0.99995e-6) return fmt::format("{:.4g} us", seconds * 1e6);
  return fmt::format("{:.4g} ns", seconds * 1e9);
}

std::string label_of(const CollectiveRow& row) {
  if (row.segments == 0) return row.algorithm;
  return fmt::format("{}, {} segment{}", row.algorithm, row.segments, row.segments == 1 ? "" : "s");
}

}  // namespace hanji::report
