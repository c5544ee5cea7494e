#include "hanji/plan/operation_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "hanji/plan/internal/facts_json.h"
#include "hanji/topology/gpu_rates_json.h"

namespace hanji::plan {
namespace {

using base::Json;

constexpr size_t kMaxOperations = 4096;
constexpr size_t kMaxTimedLayers = 4096;  // as of a model's facts
constexpr size_t kMaxSampleParts = 64;
constexpr int64_t kMaxSamples = int64_t{1} << 60;
constexpr double kMaxTime = 1e12;
constexpr double kMaxCalls = 1e12;
constexpr double kMaxGpuRate = 1e24;
constexpr double kMinRounds = 3;
constexpr double kMinEstimate = 1e-9;

double part_of_step(const Operation& one) { return one.count * one.estimate; }

/// The timed operation by which another is priced; null if there is none.
const Operation* nearest(const std::vector<Operation>& all, const std::vector<CallSeconds>& timed,
                         const Operation& wanted) {
  const auto distance = [&](const Operation& one) {
    const double ratio = std::abs(std::log(one.estimate / wanted.estimate));
    return one.kind == wanted.kind ? ratio : 1e6 + ratio;
  };
  const Operation* found = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    if (timed[i].seconds <= 0) continue;
    if (found == nullptr || distance(all[i]) < distance(*found)) found = &all[i];
  }
  return found;
}

std::string_view operator_of(const Operation& one) {
  return std::string_view(one.name).substr(0, one.name.find(' '));
}

using Places = std::vector<size_t>;

/// Where the operations of each operator are, in their order.
std::map<std::string_view, Places> places_by_operator(const std::vector<Operation>& operations) {
  std::map<std::string_view, Places> places;
  for (size_t i = 0; i < operations.size(); ++i) {
    places[operator_of(operations[i])].push_back(i);
  }
  return places;
}

size_t nearest_of(const Places& places, const std::vector<Operation>& all, double estimate) {
  return *std::ranges::min_element(places, {}, [&](size_t i) {
    return std::abs(std::log(std::max(all[i].estimate, kMinEstimate) / estimate));
  });
}

}  // namespace

double OperationTimes::seconds_of(double wanted, int64_t passes) const {
  double seconds = 0;
  for (const TimedOperation& one : operations) seconds += one.count * one.seconds;
  return std::max(seconds * wanted / static_cast<double>(samples), launches_of(passes));
}

double OperationTimes::launches_of(int64_t passes) const {
  double seconds = 0;
  for (const TimedOperation& one : operations) seconds += one.count * one.launch;
  return seconds * static_cast<double>(passes);
}

std::vector<TimedOperation> time_operations(std::vector<Operation> operations,
                                            double budget_seconds, const TimeInTurn& time) {
  for (Operation& one : operations) one.estimate = std::max(one.estimate, kMinEstimate);
  std::ranges::stable_sort(operations, std::greater(), part_of_step);
  std::vector<Operation> chosen;
  std::vector<size_t> places;
  double round = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    const double estimate = operations[i].estimate;
    if (i > 0 && kMinRounds * (round + estimate) > budget_seconds) continue;
    round += estimate;
    chosen.push_back(operations[i]);
    places.push_back(i);
  }
  std::vector<CallSeconds> calls(operations.size());
  const std::vector<CallSeconds> timed_calls = time(chosen, budget_seconds);
  for (size_t i = 0; i < chosen.size(); ++i) calls[places[i]] = timed_calls[i];
  std::vector<TimedOperation> timed;
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& one = operations[i];
    timed.push_back({one.name, one.count, calls[i].seconds, calls[i].forward, calls[i].launch});
    if (calls[i].seconds > 0) continue;
    const Operation* like = nearest(operations, calls, one);
    const CallSeconds of_like =
        like ? calls[like - operations.data()] : CallSeconds{.seconds = one.estimate};
    const double scale = like ? one.estimate / like->estimate : 1;
    timed.back().seconds = scale * of_like.seconds;
    timed.back().forward = scale * of_like.forward;
    timed.back().launch = of_like.launch;
  }
  return timed;
}

std::vector<TimedOperation> scale_times(const std::vector<Operation>& operations,
                                        const std::vector<Operation>& small,
                                        const std::vector<TimedOperation>& timed) {
  std::map<std::string_view, const TimedOperation*> seconds;
  for (const TimedOperation& one : timed) seconds[one.name] = &one;
  const auto here = places_by_operator(operations), there = places_by_operator(small);
  Places all(small.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<TimedOperation> scaled(operations.size());
  for (const auto& [name, places] : here) {
    const auto found = there.find(name);
    const Places& like = found == there.end() ? all : found->second;
    const bool are_pairs = found != there.end() && like.size() == places.size();
    for (size_t i = 0; i < places.size(); ++i) {
      const Operation& wanted = operations[places[i]];
      const double estimate = std::max(wanted.estimate, kMinEstimate);
      const Operation& by = small[are_pairs ? like[i] : nearest_of(like, small, estimate)];
      const TimedOperation& known = *seconds.at(by.name);
      const double scale = estimate / std::max(by.estimate, kMinEstimate);
      scaled[places[i]] = {wanted.name, wanted.count, scale * known.seconds, scale * known.forward};
    }
  }
  return scaled;
}

std::vector<SamplePart> parts_of_sample(const std::vector<std::string>& names,
                                        const std::vector<double>& seconds_up_to,
                                        double sample_seconds) {
  std::vector<SamplePart> parts;
  double before = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    parts.push_back({names[i], std::max(0.0, seconds_up_to[i] - before)});
    before = std::max(before, seconds_up_to[i]);
  }
  for (SamplePart& part : parts) part.seconds *= before > 0 ? sample_seconds / before : 0;
  return parts;
}

const SamplePart* longest_part(const std::vector<SamplePart>& parts) {
  const auto longest = std::ranges::max_element(parts, std::less(), &SamplePart::seconds);
  return longest == parts.end() ? nullptr : &*longest;
}

Json to_value(const OperationTimes& times) {
  Json json = {{"samples", times.samples},
               {"update_seconds", times.update_seconds},
               {"sample_seconds", times.sample_seconds},
               {"sample_deviation", times.sample_deviation},
               {"operations", Json::array()}};
  if (times.residues > 0) json["residues"] = times.residues;
  if (times.page_seconds > 0) {
    json["page_seconds"] = times.page_seconds;
    json["pages_per_sample"] = times.pages_per_sample;
  }
  for (const SamplePart& one : times.sample_parts) {
    json["sample_parts"].push_back({{"name", one.name}, {"seconds", one.seconds}});
  }
  for (const schedule::StageSeconds& one : times.layers) {
    json["layers"].push_back({one.forward, one.backward_input, one.backward_weight});
  }
  for (const TimedOperation& one : times.operations) {
    json["operations"].push_back(
        {{"name", one.name}, {"count", one.count}, {"seconds", one.seconds}});
    if (one.forward > 0) json["operations"].back()["forward"] = one.forward;
    if (one.launch > 0) json["operations"].back()["launch"] = one.launch;
  }
  if (times.gpu) json["gpu"] = topology::gpu_rates_json(*times.gpu);
  return json;
}

namespace {

/// Members are lists of three numbers; none in plans before layers were timed.
std::vector<schedule::StageSeconds> read_layers(JsonFields& fields) {
  std::vector<schedule::StageSeconds> layers;
  if (!fields.has("layers")) return layers;
  for (const Json& one : fields.list("layers", kMaxTimedLayers)) {
    const bool good =
        one.is_array() && one.size() == 3 && std::ranges::all_of(one, [](const Json& part) {
          return part.is_number() && part.get<double>() >= 0 && part.get<double>() <= kMaxTime;
        });
    if (!good) {
      fields.fail("layers", "has a layer that is not made of three times in seconds");
      return {};
    }
    layers.push_back({one[0].get<double>(), one[1].get<double>(), one[2].get<double>()});
  }
  return layers;
}

std::optional<topology::GpuRates> read_gpu(JsonFields& fields) {
  if (!fields.has("gpu")) return std::nullopt;
  return read_part(fields, "gpu", [](JsonFields& gpu) {
    return topology::GpuRates{
        .device = gpu.text("device"),
        .date = gpu.text("date"),
        .bf16_flops = gpu.real("bf16_flops", 0, kMaxGpuRate),
        .float32_flops = gpu.real("float32_flops", 0, kMaxGpuRate),
        .memory_bytes_per_second = gpu.real("memory_bytes_per_second", 0, kMaxGpuRate),
        .host_bytes_per_second = gpu.real("host_bytes_per_second", 0, kMaxGpuRate),
        .launch_seconds = gpu.real("launch_seconds", 0, kMaxTime),
        .read_seconds = gpu.real("read_seconds", 0, kMaxTime)};
  });
}

}  // namespace

OperationTimes read_operation_times(JsonFields& fields) {
  return {.samples = fields.integer("samples", 1, kMaxSamples),
          .residues = fields.has("residues") ? fields.integer("residues", 1, kMaxSamples) : 0,
          .operations =
              read_list(fields, "operations", kMaxOperations,
                        [](JsonFields& one) {
                          return TimedOperation{
                              .name = one.text("name"),
                              .count = one.real("count", 0, kMaxCalls),
                              .seconds = one.real("seconds", 0, kMaxTime),
                              .forward = one.has("forward") ? one.real("forward", 0, kMaxTime) : 0,
                              .launch = one.has("launch") ? one.real("launch", 0, kMaxTime) : 0};
                        }),
          .layers = read_layers(fields),
          .update_seconds = fields.real("update_seconds", 0, kMaxTime),
          .sample_seconds = fields.real("sample_seconds", 0, kMaxTime),
          .sample_deviation =
              fields.has("sample_deviation") ? fields.real("sample_deviation", 0, kMaxTime) : 0,
          .sample_parts = fields.has("sample_parts")
                              ? read_list(fields, "sample_parts", kMaxSampleParts,
                                          [](JsonFields& one) {
                                            return SamplePart{
                                                .name = one.text("name"),
                                                .seconds = one.real("seconds", 0, kMaxTime)};
                                          })
                              : std::vector<SamplePart>(),
          .page_seconds = fields.has("page_seconds") ? fields.real("page_seconds", 0, kMaxTime) : 0,
          .pages_per_sample =
              fields.has("page_seconds") ? fields.real("pages_per_sample", 0, kMaxTime) : 0,
          .gpu = read_gpu(fields)};
}

std::string to_json(const OperationTimes& times) { return base::dump(to_value(times)); }

Result<OperationTimes> operation_times_from_json(std::string_view text) {
  return read_text(text, "operation times", size_t{1} << 20, read_operation_times);
}

}  // namespace hanji::plan
