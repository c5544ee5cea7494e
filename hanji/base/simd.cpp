#include "hanji/base/simd.h"

#include <hwy/targets.h>

#include <string>

#include "hanji/base/env.h"

namespace hanji::base {
namespace {

#if HWY_ARCH_X86
Simd level_of(int64_t targets) {
  if ((targets & HWY_AVX3) != 0) return Simd::kAvx512;
  return (targets & HWY_AVX2) != 0 ? Simd::kAvx2 : Simd::kBaseline;
}

// Highway numbers targets downwards: all bits below that of a target are of better ones.
int64_t targets_above(Simd level) {
  if (level == Simd::kAvx512) return 0;
  return level == Simd::kAvx2 ? HWY_AVX2 - 1 : 2 * HWY_AVX2 - 1;
}
#else
Simd level_of(int64_t) { return Simd::kBaseline; }
int64_t targets_above(Simd) { return 0; }
#endif

// Not DisableTargets(): libhwy 1.0.3 forgets it when anybody asks for SupportedTargets().
void dispatch_to(Simd level) {
  hwy::SetSupportedTargetsForTest(0);  // to see all that the processor has
  const int64_t all = hwy::SupportedTargets();
  if (level_of(all) == level) return;
  hwy::SetSupportedTargetsForTest((all & ~targets_above(level)) | HWY_STATIC_TARGET);
}

Result<Simd> begin() {
  const Simd processor = level_of(hwy::SupportedTargets());
  const std::string asked = read(Variable::kHanjiSimd).value_or("");
  const auto allowed = allowed_simd(processor, asked);
  if (allowed.ok()) dispatch_to(*allowed);
  return allowed;
}

}  // namespace

std::string_view name_of(Simd level) {
  switch (level) {
    case Simd::kBaseline: return "baseline";
    case Simd::kAvx2: return "avx2";
    case Simd::kAvx512: return "avx512";
  }
  return "unknown";
}

Result<Simd> parse_simd(std::string_view name) {
  for (const Simd level : kSimdLevels) {
    if (name_of(level) == name) return level;
  }
  return invalid_argument("'" + std::string(name) +
                          "' is no level of vector instructions; the levels are baseline, avx2, "
                          "avx512");
}

Result<Simd> allowed_simd(Simd processor, std::string_view asked) {
  if (asked.empty()) return processor;
  const auto level = parse_simd(asked);
  if (!level.ok()) return level.status().at("HANJI_SIMD");
  if (*level <= processor) return *level;
  return unsupported("HANJI_SIMD is " + std::string(asked) + ", but this processor has " +
                     std::string(name_of(processor)) + " at most; unset it");
}

Result<Simd> usable_simd() {
  static const Result<Simd> allowed = begin();
  return allowed;
}

Result<Simd> simd_in_use() {
  HANJI_RETURN_IF_ERROR(usable_simd().status());
  return level_of(hwy::SupportedTargets());
}

Status check_simd(Simd level) {
  HANJI_ASSIGN_OR_RETURN(const Simd most, usable_simd());
  if (level <= most) return {};
  const bool limited = !read(Variable::kHanjiSimd).value_or("").empty();
  return unsupported("they use " + std::string(name_of(level)) + ", but " +
                     (limited ? "HANJI_SIMD allows " : "this processor has ") +
                     std::string(name_of(most)) + " at most; " +
                     (limited ? "unset HANJI_SIMD"
                              : "use a processor that has it, or begin anew with HANJI_SIMD=" +
                                    std::string(name_of(most))));
}

Status use_simd(Simd level) {
  HANJI_RETURN_IF_ERROR(check_simd(level));
  dispatch_to(level);
  return {};
}

}  // namespace hanji::base
