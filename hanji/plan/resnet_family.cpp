#include <fmt/format.h>

#include <array>

#include "hanji/plan/internal/families.h"

namespace hanji::plan {
namespace {

constexpr std::string_view kTiny = "resnet-tiny";
constexpr std::array kResNetPresets = {kTiny, std::string_view("resnet18"),
                                       std::string_view("resnet50")};
constexpr std::array<std::string_view, 2> kResNetKeys = {"model.width", "model.init"};
constexpr std::array kResNetPrecisions = {Precision::kFloat32, Precision::kFloat64};
/// Batch normalisation by fewer samples is noise, and by one of 1 x 1 pixels nothing at all.
constexpr int64_t kSmallestGrain = 16;

std::span<const KeyDefault> resnet_defaults() {
  static const std::array defaults = {
      KeyDefault{"data.images", static_cast<int64_t>(Images::kGenerated)},
      KeyDefault{"train.grain", kSmallestGrain},
      KeyDefault{"train.global_batch", 4 * kSmallestGrain},
      KeyDefault{"train.learning_rate", 1e-2},
  };
  return defaults;
}

void resolve_resnet(ModelConfig& model) {
  if (model.width == kAuto) model.width = model.preset == kTiny ? 16 : 64;
}

std::string describe_resnet(const ModelConfig& model, int64_t classes) {
  return fmt::format("{} channels in the first stage, {} classes", model.width, classes);
}

}  // namespace

ModelFamily resnet_family() {
  return {.name = "resnet",
          .data = DataKind::kImages,
          .presets = kResNetPresets,
          .keys = kResNetKeys,
          .defaults = resnet_defaults(),
          .smallest_grain = kSmallestGrain,
          .precisions = kResNetPrecisions,
          .resolve = resolve_resnet,
          .describe = describe_resnet};
}

}  // namespace hanji::plan
