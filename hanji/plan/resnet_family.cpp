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

/// ImageNet's, in the crops of the paper.
std::span<const KeyDefault> published_resnets() {
  static constexpr auto kPublished = std::span(kResNetPresets).last<2>();
  static const std::array published = {KeyDefault{"data.image_size", int64_t{224}, kPublished},
                                       KeyDefault{"data.classes", int64_t{1000}, kPublished}};
  return published;
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
          .published = published_resnets(),
          .smallest_grain = kSmallestGrain,
          .precisions = kResNetPrecisions,
          .resolve = resolve_resnet,
          .describe = describe_resnet};
}

}  // namespace hanji::plan
