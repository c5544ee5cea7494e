#include "hanji/cost/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/cost/nonnegative.h"
#include "hanji/cost/price.h"
#include "hanji/cost/select.h"
#include "hanji/cost/usage.h"

namespace hanji::cost {
namespace {

using schedule::Routine;

constexpr std::array kRoutines = {Routine::kAllReduce,     Routine::kBroadcast, Routine::kAllGather,
                                  Routine::kReduceScatter, Routine::kAllToAll,  Routine::kReduce,
                                  Routine::kGather,        Routine::kScatter};
// Working sets below the first level, where meeting and starting cost most.
constexpr std::array<int64_t, 3> kSmallBytes = {1 << 10, 1 << 12, 1 << 14};
// Who is the busiest depends on the costs, which depend on who is the busiest.
constexpr int kFitRounds = 4;
// Above this only one type is timed: larger tensors are bound by memory, whatever they hold.
constexpr int64_t kLargeBytes = int64_t{1} << 26;

// Elements of StepList::count for which all tensors together are about `bytes`.
int64_t count_for(Routine routine, int ranks, int64_t bytes, int64_t element_bytes) {
  const int64_t elements = bytes / element_bytes;
  const int64_t p = ranks;
  int64_t parts = p;  // of `count` elements each, over all tensors
  if (routine == Routine::kAllGather || routine == Routine::kReduceScatter) parts = p * (p + 1);
  if (routine == Routine::kAllToAll) parts = 2 * p * p;
  if (routine == Routine::kGather || routine == Routine::kScatter) parts = 2 * p;
  return std::max<int64_t>(1, elements / parts);
}

void add_calls(std::vector<TimedCall>& calls, Routine routine, DType dtype, int ranks,
               int64_t bytes) {
  Query query;
  query.routine = routine;
  query.element_bytes = static_cast<int64_t>(base::size_of(dtype));
  query.ranks = ranks;
  query.count = count_for(routine, ranks, bytes, query.element_bytes);
  for (const Candidate& one : candidates_for(query, Rates())) {
    calls.push_back({one.list, dtype});
    const bool takes_private = dtype == DType::kFloat32 && !touches_peer_tensors(*one.list);
    if (takes_private && routine != Routine::kBarrier) calls.push_back({one.list, dtype, false});
  }
}

bool is_used(const std::vector<Equation>& equations, size_t unknown) {
  return std::ranges::any_of(equations, [&](const Equation& e) { return e.usage[unknown] > 0; });
}

// Gives an unknown of a level that no call reached the value of the nearest level that has one.
void fill_unused(const std::vector<Equation>& equations, std::vector<double>& x) {
  const auto levels = static_cast<int>(kLevelBytes.size());
  for (size_t unknown = 0; unknown < kLevelUnknowns; ++unknown) {
    const auto at = [&](int level) {
      return kCommonUnknowns + static_cast<size_t>(level) * kLevelUnknowns + unknown;
    };
    std::vector<int> used;
    for (int level = 0; level < levels; ++level) {
      if (is_used(equations, at(level))) used.push_back(level);
    }
    if (used.empty()) continue;
    for (int level = 0; level < levels; ++level) {
      if (is_used(equations, at(level))) continue;
      x[at(level)] = x[at(
          *std::ranges::min_element(used, {}, [&](int other) { return std::abs(other - level); }))];
    }
  }
}

// Four digits: what is measured has not more, and the file stays short.
double rounded(double factor) {
  const double unit = std::pow(10.0, std::floor(std::log10(factor)) - 3);
  return std::round(factor / unit) * unit;
}

std::vector<Correction::Point>& points_of(const TimedCall& call, FittedCosts& costs) {
  for (Correction& one : costs.corrections) {
    if (one.routine == call.list->routine && one.algorithm == call.list->algorithm &&
        one.dtype == call.dtype && one.in_heap == call.in_heap) {
      return one.points;
    }
  }
  costs.corrections.push_back(
      {call.list->routine, call.list->algorithm, call.dtype, call.in_heap, {}});
  return costs.corrections.back().points;
}

void add_correction(const TimedCall& call, FittedCosts& costs) {
  const double factor = rounded(1 / (1 + error_of_terms(call, costs)));
  const auto bytes = static_cast<int64_t>(tensor_bytes(*call.list, call.element()));
  auto& points = points_of(call, costs);
  if (points.empty() || points.back().bytes < bytes) points.push_back({bytes, factor});
}

}  // namespace

std::vector<TimedCall> design_calls(int ranks, int64_t most_bytes) {
  std::vector<TimedCall> calls;
  add_calls(calls, Routine::kBarrier, DType::kUInt8, ranks, 0);
  std::vector<int64_t> sizes(kSmallBytes.begin(), kSmallBytes.end());
  sizes.insert(sizes.end(), kLevelBytes.begin(), kLevelBytes.end());
  for (const int64_t bytes : sizes) {
    if (bytes > most_bytes) continue;
    for (const Routine routine : kRoutines) {
      add_calls(calls, routine, DType::kFloat32, ranks, bytes);
    }
    if (bytes > kLargeBytes) continue;
    for (const DType dtype : kFittedTypes) {
      if (dtype == DType::kFloat32) continue;
      add_calls(calls, Routine::kAllReduce, dtype, ranks, bytes);
    }
  }
  return calls;
}

Result<FittedCosts> fit_costs(const std::vector<TimedCall>& calls, int ranks, int processors) {
  for (const TimedCall& call : calls) {
    if (!(call.seconds > 0)) {
      return base::invalid_argument(
          fmt::format("{} {} of {} elements has no time; time every call before fitting",
                      name_of(call.list->routine), call.list->algorithm, call.list->count));
    }
  }
  if (std::ranges::none_of(calls, &TimedCall::in_heap)) {
    return base::invalid_argument("no calls in the heap to fit costs to; time some");
  }
  FittedCosts costs = assumed_costs(ranks, processors);
  for (int round = 0; round < kFitRounds; ++round) {
    std::vector<Equation> equations;
    for (const TimedCall& call : calls) {
      if (!call.in_heap) continue;
      equations.push_back({usage_of(*call.list, call.element(), costs), call.seconds});
    }
    std::vector<double> x = solve_nonnegative(equations);
    fill_unused(equations, x);
    set_unknowns(costs, x);
  }
  std::vector<double> errors;
  for (const TimedCall& call : calls) {
    if (call.in_heap) errors.push_back(std::abs(error_of_terms(call, costs)));
  }
  std::ranges::sort(errors);
  costs.median_error = errors[errors.size() / 2];
  costs.worst_error = errors.back();
  for (const TimedCall& call : calls) add_correction(call, costs);
  return costs;
}

double error_of_terms(const TimedCall& call, const FittedCosts& costs) {
  const auto usage = usage_of(*call.list, call.element(), costs);
  return weighted_sum(usage, unknowns_of(costs)) / call.seconds - 1;
}

double error_of(const TimedCall& call, const FittedCosts& costs) {
  Rates rates;
  rates.fitted = costs;
  return price_seconds(*call.list, call.element(), rates) / call.seconds - 1;
}

}  // namespace hanji::cost
