#include "hanji/plan/operation_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hanji/plan/internal/facts_json.h"

namespace hanji::plan {
namespace {

using base::Json;

constexpr size_t kMaxOperations = 4096;
constexpr int64_t kMaxSamples = int64_t{1} << 60;
constexpr double kMaxTime = 1e12;
constexpr double kMaxCalls = 1e12;

double part_of_step(const Operation& one) { return one.count * one.estimate; }

/// The timed operation by which another is priced; null if there is none.
const Operation* nearest(const std::vector<Operation>& all, const std::vector<Timing>& timings,
                         const Operation& wanted) {
  const auto distance = [&](const Operation& one) {
    const double ratio = std::abs(std::log(one.estimate / wanted.estimate));
    return one.kind == wanted.kind ? ratio : 1e6 + ratio;
  };
  const Operation* found = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    if (timings[i].seconds <= 0) continue;
    if (found == nullptr || distance(all[i]) < distance(*found)) found = &all[i];
  }
  return found;
}

}  // namespace

double OperationTimes::seconds_of(double wanted) const {
  double seconds = 0;
  for (const TimedOperation& one : operations) seconds += one.count * one.seconds;
  return seconds * wanted / static_cast<double>(samples);
}

std::vector<TimedOperation> time_operations(std::vector<Operation> operations,
                                            double budget_seconds, const TimeOperation& time) {
  for (Operation& one : operations) one.estimate = std::max(one.estimate, 1e-9);
  std::ranges::stable_sort(operations, std::greater(), part_of_step);
  double rest = std::transform_reduce(operations.begin(), operations.end(), 0.0, std::plus(),
                                      [](const Operation& one) { return one.estimate; });
  std::vector<Timing> timings;
  for (const Operation& one : operations) {
    const bool fits = timings.empty() || one.estimate <= budget_seconds;
    timings.push_back(fits ? time(one, budget_seconds * one.estimate / rest) : Timing());
    budget_seconds = std::max(0.0, budget_seconds - timings.back().spent);
    rest -= one.estimate;
  }
  std::vector<TimedOperation> timed;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& one = operations[i];
    timed.push_back({one.name, one.count, timings[i].seconds});
    if (timings[i].seconds > 0) continue;
    const Operation* like = nearest(operations, timings, one);
    const double scale = like ? timings[like - operations.data()].seconds / like->estimate : 1;
    timed.back().seconds = scale * one.estimate;
  }
  return timed;
}

Json to_value(const OperationTimes& times) {
  Json json = {{"samples", times.samples},
               {"update_seconds", times.update_seconds},
               {"sample_seconds", times.sample_seconds},
               {"operations", Json::array()}};
  for (const TimedOperation& one : times.operations) {
    json["operations"].push_back(
        {{"name", one.name}, {"count", one.count}, {"seconds", one.seconds}});
  }
  return json;
}

OperationTimes read_operation_times(JsonFields& fields) {
  return {.samples = fields.integer("samples", 1, kMaxSamples),
          .operations = read_list(fields, "operations", kMaxOperations,
                                  [](JsonFields& one) {
                                    return TimedOperation{
                                        .name = one.text("name"),
                                        .count = one.real("count", 0, kMaxCalls),
                                        .seconds = one.real("seconds", 0, kMaxTime)};
                                  }),
          .update_seconds = fields.real("update_seconds", 0, kMaxTime),
          .sample_seconds = fields.real("sample_seconds", 0, kMaxTime)};
}

std::string to_json(const OperationTimes& times) { return to_value(times).dump(); }

Result<OperationTimes> operation_times_from_json(std::string_view text) {
  return read_text(text, "operation times", size_t{1} << 20, read_operation_times);
}

}  // namespace hanji::plan
