#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/internal/facts_json.h"

namespace hanji::plan {
namespace {

using base::Json;

// No sum over a model's layers or tensors overflows.
constexpr int64_t kMaxOfAFact = int64_t{1} << 50;
constexpr double kMaxAmount = 1e24;
constexpr int64_t kMaxElements = 10'000'000'000'000;
constexpr size_t kMaxLayerFacts = 4096;
constexpr size_t kMaxTensors = 1 << 16;
constexpr size_t kMaxParts = 1024;

Json to_value(const Amount& amount) { return {amount.fixed, amount.per_sample}; }

Json to_value(const LayerFacts& layer) {
  Json json = {{"name", layer.name},
               {"products", Json::array()},
               {"elementwise_bytes", layer.elementwise_bytes},
               {"kept", to_value(layer.kept)},
               {"backward", to_value(layer.backward)},
               {"flow", to_value(layer.flow)}};
  for (const Product& one : layer.products) {
    json["products"].push_back({one.m, one.n, one.k, one.count});
  }
  for (const LayerCall& one : layer.calls) {
    Json& call =
        json["calls"].emplace_back(Json{name_of(one.routine), name_of(one.op), name_of(one.dtype)});
    if (one.routine == schedule::Routine::kTreeReduce) call.push_back(one.blocks);
    for (const Amount& count : one.counts) call.push_back(to_value(count));
  }
  for (const LayerCall& one : layer.calls) json["call_ranks"].push_back(one.ranks);
  if (std::ranges::any_of(layer.calls, &LayerCall::is_context)) {
    for (const LayerCall& one : layer.calls)
      json["context_calls"].push_back(one.is_context ? 1 : 0);
  }
  for (const Amount& one : layer.copied) json["copied"].push_back(to_value(one));
  if (!layer.tied.empty()) json["tied"] = layer.tied;
  if (layer.for_weights) json["for_weights"] = to_value(*layer.for_weights);
  return json;
}

/// A list of `size` numbers from `min` on; zeros after a mistake.
std::vector<double> read_numbers(JsonFields& fields, const Json& list, std::string_view name,
                                 size_t size, double min) {
  const auto max = static_cast<double>(kMaxOfAFact);
  std::vector<double> numbers(size);
  bool good = list.is_array() && list.size() == size;
  for (size_t i = 0; good && i < size; ++i) {
    good = list[i].is_number() && list[i].get<double>() >= min && list[i].get<double>() <= max;
    if (good) numbers[i] = list[i].get<double>();
  }
  if (!good) fields.fail(name, fmt::format("is not made of {} numbers in {} to 2^50", size, min));
  return numbers;
}

Amount amount_of(JsonFields& fields, const Json& list, const char* name) {
  const auto numbers = read_numbers(fields, list, name, 2, -static_cast<double>(kMaxOfAFact));
  return {static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1])};
}

Amount read_amount(JsonFields& fields, const char* name) {
  const Json& list = fields.list(name, 2);
  if (!fields.has(name)) return {};
  return amount_of(fields, list, name);
}

/// An enumerator of so many by its name_of().
template <class E>
E read_named(JsonFields& fields, const Json& text, int num_enumerators) {
  for (int i = 0; i < num_enumerators; ++i) {
    if (text == name_of(static_cast<E>(i))) return static_cast<E>(i);
  }
  fields.fail("calls", fmt::format("has {}, which is no name of its kind", base::dump(text)));
  return {};
}

LayerCall read_call(JsonFields& fields, const Json& list) {
  if (!list.is_array() || list.size() < 4 || list.size() > 3 + kMaxParts) {
    fields.fail("calls", "has a member that is not made of three names and counts");
    return {};
  }
  LayerCall call{read_named<schedule::Routine>(fields, list[0], schedule::kNumRoutines),
                 read_named<schedule::ReduceOp>(fields, list[1], schedule::kNumReduceOps),
                 read_named<DType>(fields, list[2], base::kNumDTypes)};
  size_t first = 3;
  if (call.routine == schedule::Routine::kTreeReduce) {
    const Json& blocks = list[first++];
    const bool good = blocks.is_number_integer() && blocks >= 1 && blocks <= base::kMaxRanks;
    if (!good) fields.fail("calls", "has a tree reduction without its number of blocks");
    if (good) call.blocks = blocks.get<int64_t>();
  }
  for (size_t i = first; i < list.size(); ++i) {
    call.counts.push_back(amount_of(fields, list[i], "calls"));
  }
  return call;
}

LayerFacts read_layer(JsonFields& fields) {
  for (const char* name : {"tensor_bytes", "operations"}) fields.ignore(name);  // of older facts
  LayerFacts layer{.name = fields.text("name"),
                   .elementwise_bytes = fields.real("elementwise_bytes", 0, kMaxAmount),
                   .kept = read_amount(fields, "kept"),
                   .flow = read_amount(fields, "flow"),
                   .backward = read_amount(fields, "backward")};
  for (const Json& one : fields.list("products", kMaxTensors)) {
    const auto numbers = read_numbers(fields, one, "products", 4, 0);
    layer.products.push_back({.m = numbers[0],
                              .n = static_cast<int64_t>(numbers[1]),
                              .k = static_cast<int64_t>(numbers[2]),
                              .count = numbers[3]});
  }
  if (fields.has("for_weights")) layer.for_weights = read_amount(fields, "for_weights");
  if (fields.has("tied")) {
    const Json& tied = fields.list("tied", kMaxTensors);
    for (const double index : read_numbers(fields, tied, "tied", tied.size(), 0)) {
      layer.tied.push_back(static_cast<int64_t>(index));
    }
  }
  if (fields.has("copied")) {
    for (const Json& one : fields.list("copied", kMaxTensors)) {
      layer.copied.push_back(amount_of(fields, one, "copied"));
    }
  }
  if (!fields.has("calls")) return layer;
  for (const Json& one : fields.list("calls", kMaxTensors)) {
    layer.calls.push_back(read_call(fields, one));
  }
  if (fields.has("call_ranks")) {  // not of older facts
    const Json& ranks = fields.list("call_ranks", kMaxTensors);
    const auto numbers = read_numbers(fields, ranks, "call_ranks", layer.calls.size(), 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      layer.calls[i].ranks = static_cast<int64_t>(numbers[i]);
    }
  }
  if (fields.has("context_calls")) {
    const Json& of_context = fields.list("context_calls", kMaxTensors);
    const auto numbers = read_numbers(fields, of_context, "context_calls", layer.calls.size(), 0);
    for (size_t i = 0; i < numbers.size(); ++i) layer.calls[i].is_context = numbers[i] > 0;
  }
  return layer;
}

ParameterFacts read_parameter(JsonFields& fields, Json list) {
  std::vector<double> blocks;
  if (list.is_array() && !list.empty() && list.back().is_array()) {
    const Json& sizes = list.back();
    blocks = read_numbers(fields, sizes, "parameters", std::min(sizes.size(), kMaxParts), 0);
    list.erase(list.size() - 1);
  }
  const size_t size = std::clamp<size_t>(list.size(), 2, 2 + kMaxParts);
  const auto numbers = read_numbers(fields, list, "parameters", size, 0);
  return {static_cast<int64_t>(numbers[0]),
          static_cast<int64_t>(numbers[1]),
          {numbers.begin() + 2, numbers.end()},
          {blocks.begin(), blocks.end()}};
}

void check_parameters(const ModelFacts& facts, JsonFields& fields) {
  int64_t elements = 0;
  for (const ParameterFacts& one : facts.parameters) {
    elements = std::min(elements, kMaxElements) + one.elements;
    if (one.elements < 1) fields.fail("parameters", "has a member without elements");
    if (one.layer >= std::ssize(facts.layers)) {
      fields.fail("parameters", fmt::format("has a member of layer {}, but there are {}", one.layer,
                                            base::counted(facts.layers.size(), "layer")));
    }
  }
  if (elements > kMaxElements) fields.fail("parameters", "has more than 10^13 elements");
  for (const LayerFacts& layer : facts.layers) {
    if (std::ranges::any_of(layer.tied,
                            [&](int64_t one) { return one >= std::ssize(facts.parameters); })) {
      fields.fail("layers",
                  fmt::format("has {}, which reads a parameter that is not listed", layer.name));
    }
  }
}

}  // namespace

Json to_value(const ModelFacts& facts) {
  Json json = {{"layers", Json::array()},
               {"parameters", Json::array()},
               {"targets_per_sample", facts.targets_per_sample},
               {"sample_bytes", facts.sample_bytes},
               {"statistics", facts.num_statistics},
               {"buffer_bytes", facts.buffer_bytes}};
  for (const LayerFacts& layer : facts.layers) json["layers"].push_back(to_value(layer));
  for (const ParameterFacts& one : facts.parameters) {
    Json& parameter = json["parameters"].emplace_back(Json{one.elements, one.layer});
    for (const int64_t part : one.parts) parameter.push_back(part);
    if (!one.blocks.empty()) parameter.push_back(one.blocks);
  }
  return json;
}

ModelFacts read_model_facts(JsonFields& fields) {
  ModelFacts facts{.targets_per_sample = fields.integer("targets_per_sample", 1, kMaxOfAFact),
                   .sample_bytes = fields.integer("sample_bytes", 0, kMaxOfAFact),
                   .num_statistics = fields.integer("statistics", 0, kMaxOfAFact),
                   .buffer_bytes = fields.integer("buffer_bytes", 0, kMaxOfAFact)};
  facts.layers = read_list(fields, "layers", kMaxLayerFacts, read_layer);
  if (facts.layers.empty()) fields.fail("layers", "has no member");
  for (const Json& one : fields.list("parameters", kMaxTensors)) {
    facts.parameters.push_back(read_parameter(fields, one));
  }
  check_parameters(facts, fields);
  return facts;
}

std::string facts_to_json(const ModelFacts& facts) { return base::dump(to_value(facts)); }

Result<ModelFacts> facts_from_json(std::string_view text) {
  return read_text(text, "facts", size_t{4} << 20, read_model_facts);
}

}  // namespace hanji::plan
