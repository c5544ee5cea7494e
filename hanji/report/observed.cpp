#include "hanji/report/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using base::Json;

constexpr std::array kQuantities = {Quantity::kBuffer, Quantity::kGradient, Quantity::kParameter,
                                    Quantity::kOptimizer, Quantity::kTotal};

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

template <class T>
T number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  throw Error(base::corrupt("\"" + std::string(text) + "\" is no number"));
}

Json to_json(const ObservedStep& step) {
  Json json = {{"step", step.step}, {"parameters_sha256", step.parameters_sha256}};
  for (const Quantity quantity : kQuantities) json[std::string(name_of(quantity))] = Json::object();
  for (const Digest& digest : step.digests) {
    json[std::string(name_of(digest.quantity))][digest.name] = hex(digest.value);
  }
  json["backwards"] = Json::object();
  for (const auto& [of, value] : step.backwards) {
    json["backwards"][fmt::format("{}.{}", of.grain, of.part)] = hex(value);
  }
  return json;
}

ObservedStep step_from(const Json& json) {
  if (!json.at("step").is_number_integer()) throw Error(base::corrupt("a step is no integer"));
  ObservedStep step{.step = json.at("step").get<int64_t>(),
                    .parameters_sha256 = json.at("parameters_sha256").get<std::string>()};
  for (const Quantity quantity : kQuantities) {
    for (const auto& [name, value] : json.at(std::string(name_of(quantity))).items()) {
      step.digests.push_back({quantity, name, number<uint64_t>(value.get<std::string>(), 16)});
    }
  }
  for (const auto& [name, value] : json.at("backwards").items()) {
    const std::string_view of = name;
    const size_t dot = std::min(of.find('.'), of.size() - 1);
    step.backwards[{number<int64_t>(of.substr(0, dot), 10), number<int>(of.substr(dot + 1), 10)}] =
        number<uint64_t>(value.get<std::string>(), 16);
  }
  return step;
}

}  // namespace

std::string_view name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::kBuffer: return "buffer";
    case Quantity::kGradient: return "gradient";
    case Quantity::kParameter: return "parameter";
    case Quantity::kOptimizer: return "optimizer";
    case Quantity::kTotal: return "total";
  }
  return "unknown";
}

std::string to_json(const ObservedRun& run) {
  Json json = {
      {"state_sha256", run.state_sha256}, {"farthest", run.farthest}, {"steps", Json::array()}};
  for (const ObservedStep& step : run.steps) json["steps"].push_back(to_json(step));
  return base::dump(json) + "\n";
}

Result<ObservedRun> observed_from_json(std::string_view text) {
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 64, kMaxObservedBytes));
  try {
    ObservedRun run;
    run.state_sha256 = json.at("state_sha256").get<std::string>();
    run.farthest = json.at("farthest").get<double>();
    for (const Json& step : json.at("steps")) run.steps.push_back(step_from(step));
    return run;
  } catch (const std::exception& error) {  // nlohmann's own or ours: the text is foreign
    return base::corrupt(std::string("what a process observed: ") + error.what());
  }
}

}  // namespace hanji::report
