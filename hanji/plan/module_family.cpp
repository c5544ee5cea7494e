#include <array>

#include "hanji/plan/internal/families.h"

namespace hanji::plan {
namespace {

constexpr std::array<std::string_view, 1> kModulePresets = {"module"};
constexpr std::array kModulePrecisions = {Precision::kFloat32, Precision::kFloat64};

std::string describe_module(const ModelConfig&, int64_t) { return "the program's own"; }

}  // namespace

ModelFamily module_family() {
  return {.name = "module",
          .data = DataKind::kOwn,
          .presets = kModulePresets,
          .precisions = kModulePrecisions,
          .describe = describe_module};
}

}  // namespace hanji::plan
