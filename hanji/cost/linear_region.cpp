#include "hanji/cost/linear_region.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "hanji/cost/price.h"
#include "hanji/cost/select.h"

namespace hanji::cost {
namespace {

using schedule::Routine;

/// How a choice needs its input and leaves its output.
struct Ends {
  End before, after;
};

Ends ends_of(Moved moved) {
  switch (moved) {
    // Whichever way the input is cut, all of it is gathered.
    case Moved::kInput: return {End::kFree, End::kFeatures};
    case Moved::kOutput: return {End::kFeatures, End::kFree};
    case Moved::kWeights: return {End::kTokens, End::kTokens};
  }
  return {End::kFree, End::kFree};
}

bool turns(End fixed, End needed) {
  return fixed != End::kFree && fixed != End::kWhole && needed != End::kFree && fixed != needed;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<End> end_named(std::string_view name) {
  if (name == "whole") return End::kWhole;
  if (name == "tokens") return End::kTokens;
  if (name == "features") return End::kFeatures;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Moved moved) {
  switch (moved) {
    case Moved::kInput: return "input";
    case Moved::kOutput: return "output";
    case Moved::kWeights: return "weights";
  }
  return "unknown";
}

Result<LinearRegion> parse_linear_region(std::string_view text, int64_t rows) {
  const auto refused =
      base::invalid_argument(fmt::format("'{}' is no linear layer; write NAME=INPUTSxOUTPUTS, and "
                                         "with fixed ends :FROM-TO, each whole, tokens "
                                         "or features: qkv=4096x6144:tokens-features",
                                         text));
  const size_t name_end = text.find('=');
  if (name_end == 0 || name_end == std::string_view::npos) return refused;
  LinearRegion region{std::string(text.substr(0, name_end)), rows};
  std::string_view sizes = text.substr(name_end + 1);
  if (const size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    const std::string_view ends = sizes.substr(colon + 1);
    const size_t dash = ends.find('-');
    if (dash == std::string_view::npos) return refused;
    const auto before = end_named(ends.substr(0, dash)), after = end_named(ends.substr(dash + 1));
    if (!before || !after) return refused;
    region.before = *before;
    region.after = *after;
    sizes = sizes.substr(0, colon);
  }
  const size_t times = sizes.find('x');
  if (times == std::string_view::npos) return refused;
  const auto inputs = number(sizes.substr(0, times)), outputs = number(sizes.substr(times + 1));
  if (!inputs || !outputs) return refused;
  region.inputs = *inputs;
  region.outputs = *outputs;
  return region;
}

double RegionCall::sent_elements(int ranks) const {
  const double part = static_cast<double>(elements) / ranks;
  // Of an all_to_all a rank has a part only, and keeps its own piece of it.
  const double pieces = routine == Routine::kAllToAll ? 1.0 / ranks : 1.0;
  const double ways = routine == Routine::kAllReduce ? 2 : 1;
  return ways * part * (ranks - 1) * pieces;
}

std::vector<RegionCall> calls_of(const LinearRegion& region, Moved moved) {
  const int64_t input = region.rows * region.inputs;
  const int64_t output = region.rows * region.outputs;
  const int64_t weights = region.inputs * region.outputs;
  std::vector<RegionCall> calls;
  const Ends needed = ends_of(moved);
  const auto turn = [&](int64_t elements) {
    calls.push_back({Routine::kAllToAll, elements, false});
    calls.push_back({Routine::kAllToAll, elements, true});
  };
  if (turns(region.before, needed.before)) turn(input);
  const bool from_whole = region.before == End::kWhole, to_whole = region.after == End::kWhole;
  // A part of what is whole costs nothing, and the gathering of its gradient's parts one call.
  if (from_whole && moved != Moved::kInput) calls.push_back({Routine::kAllGather, input, true});
  switch (moved) {
    case Moved::kInput:
      if (!from_whole) calls.push_back({Routine::kAllGather, input, false});
      calls.push_back({from_whole ? Routine::kAllReduce : Routine::kReduceScatter, input, true});
      break;
    case Moved::kOutput:
      calls.push_back({to_whole ? Routine::kAllReduce : Routine::kReduceScatter, output, false});
      if (!to_whole) calls.push_back({Routine::kAllGather, output, true});
      break;
    case Moved::kWeights:
      calls.push_back({Routine::kAllGather, weights, false});
      calls.push_back({Routine::kAllGather, weights, true});
      calls.push_back({Routine::kReduceScatter, weights, true, true});
      break;
  }
  if (to_whole && moved != Moved::kOutput) calls.push_back({Routine::kAllGather, output, false});
  if (turns(region.after, needed.after)) turn(output);
  return calls;
}

SecondsOf seconds_on_host(Rates rates, int ranks) {
  auto chooser = std::make_shared<Chooser>(std::move(rates));
  return [chooser = std::move(chooser), ranks](Routine routine, int64_t bytes) {
    const int64_t share = routine == Routine::kAllReduce ? bytes : bytes / ranks;
    return price_seconds({.routine = routine,
                          .element_bytes = 4,
                          .ranks = ranks,
                          .count = std::max<int64_t>(1, share / 4),
                          .dtype = DType::kFloat32,
                          .in_heap = false},
                         *chooser);
  };
}

RegionCost cost_of(Moved moved, std::vector<RegionCall> calls, int ranks, const ElementBytes& bytes,
                   const SecondsOf& seconds_of) {
  RegionCost cost{moved, std::move(calls)};
  for (const RegionCall& call : cost.calls) {
    const int64_t element_bytes = call.sums_weights ? bytes.weight_gradients : bytes.moved;
    cost.sent_bytes += call.sent_elements(ranks) * static_cast<double>(element_bytes);
    // A rank's largest buffer holds its part of what turns, and the whole of all else.
    const int64_t held =
        call.routine == Routine::kAllToAll ? (call.elements + ranks - 1) / ranks : call.elements;
    if (ranks > 1) cost.seconds += seconds_of(call.routine, held * element_bytes);
  }
  return cost;
}

std::vector<RegionCost> compare_moved(const LinearRegion& region, int ranks, int64_t element_bytes,
                                      const SecondsOf& seconds_of) {
  std::vector<RegionCost> costs;
  for (const Moved moved : kAllMoved) {
    costs.push_back(
        cost_of(moved, calls_of(region, moved), ranks, {element_bytes, element_bytes}, seconds_of));
  }
  std::ranges::stable_sort(costs, {}, &RegionCost::seconds);
  return costs;
}

}  // namespace hanji::cost
