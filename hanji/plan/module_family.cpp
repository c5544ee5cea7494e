#include <array>

#include "hanji/plan/internal/families.h"

namespace hanji::plan {
namespace {

constexpr std::array<std::string_view, 1> kModulePresets = {"module"};
constexpr std::array kModulePrecisions = {Precision::kFloat32, Precision::kFloat64};

void resolve_module(ModelConfig&) {}
std::vector<Contradiction> check_module(const Config&) { return {}; }
std::string describe_module(const ModelConfig&, int64_t) { return "the program's own"; }

}  // namespace

ModelFamily module_family() {
  return {.name = "module",
          .data = DataKind::kOwn,
          .presets = kModulePresets,
          .keys = {},
          .defaults = {},
          .smallest_grain = 1,
          .precisions = kModulePrecisions,
          .resolve = resolve_module,
          .check = check_module,
          .describe = describe_module,
          .facts = nullptr};
}

}  // namespace hanji::plan
