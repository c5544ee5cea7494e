#include "hanji/plan/named_model.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

namespace hanji::plan {
namespace {

constexpr std::string_view kFamily = "gpt:";
constexpr int64_t kVocabulary = 50304;
constexpr int64_t kBlock = 2048;
constexpr int64_t kMaxLayers = 512;
constexpr double kWidthPerLayer = 128;  // of the published GPT models from 1.3 B up: 85 to 128
constexpr double kTolerance = 0.01;
constexpr int64_t kLeast = 1'000'000;
constexpr int64_t kMaxParameters = 10'000'000'000'000;

/// "7B", "124M", "1.5T": powers of 1000.
std::optional<int64_t> parse_count(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || text.data() + text.size() - end != 1) return {};
  const double unit = *end == 'M' ? 1e6 : *end == 'B' ? 1e9 : *end == 'T' ? 1e12 : 0;
  const double count = value * unit;
  if (!(count >= static_cast<double>(kLeast) && count <= static_cast<double>(kMaxParameters)))
    return {};
  return std::llround(count);
}

ModelSpec with(int64_t layers, int64_t width) {
  const int64_t head = width % 128 == 0 && width >= 2048 ? 128 : 64;
  return {.layers = layers,
          .heads = width / head,
          .width = width,
          .block = kBlock,
          .vocabulary = kVocabulary};
}

/// The width at which so many layers come closest to `parameters`.
ModelSpec with_layers(int64_t layers, int64_t parameters) {
  const double a = 12.0 * static_cast<double>(layers);
  const double b = static_cast<double>(kVocabulary + kBlock + 13 * layers + 2);
  const double width = (std::sqrt(b * b + 4 * a * static_cast<double>(parameters)) - b) / (2 * a);
  const int64_t multiple = width >= 2048 ? 128 : 64;
  const int64_t steps = std::llround(width / static_cast<double>(multiple));
  return with(layers, std::max<int64_t>(1, steps) * multiple);
}

double miss(const ModelSpec& spec, int64_t parameters) {
  return std::abs(static_cast<double>(spec.num_parameters()) / static_cast<double>(parameters) - 1);
}

double oddity(const ModelSpec& spec) {
  return std::abs(std::log(static_cast<double>(spec.width) /
                           (kWidthPerLayer * static_cast<double>(spec.layers))));
}

/// Of the shapes within the tolerance the most usual one; if there is none the closest.
ModelSpec shape_of(int64_t parameters) {
  ModelSpec best = with_layers(1, parameters);
  for (int64_t layers = 2; layers <= kMaxLayers; ++layers) {
    const ModelSpec one = with_layers(layers, parameters);
    const double mine = miss(one, parameters), others = miss(best, parameters);
    const bool both = mine <= kTolerance && others <= kTolerance;
    if (both ? oddity(one) < oddity(best) : mine < others) best = one;
  }
  return best;
}

}  // namespace

Result<NamedModel> find_model(std::string_view name) {
  if (!name.starts_with(kFamily)) {
    HANJI_ASSIGN_OR_RETURN(const ModelSpec spec, preset(name));
    return NamedModel{std::string(name), spec.num_parameters(), spec};
  }
  const auto count = parse_count(name.substr(kFamily.size()));
  if (!count) {
    return base::invalid_argument(fmt::format(
        "\"{}\" is not a size of 1M to 10T parameters; write gpt:124M, gpt:7B or gpt:1.5T", name));
  }
  return NamedModel{std::string(name), *count, shape_of(*count)};
}

}  // namespace hanji::plan
