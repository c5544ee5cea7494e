#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::base {

/// The vector instructions of hanji's own kernels. Each level includes those before it; kernels of
/// two levels round differently. kBaseline is what every processor of the architecture has, and
/// the only level of others than x86.
enum class Simd : uint8_t { kBaseline, kAvx2, kAvx512 };

inline constexpr std::array kSimdLevels = {Simd::kBaseline, Simd::kAvx2, Simd::kAvx512};

std::string_view name_of(Simd level);  ///< "baseline", "avx2", "avx512"

/// The level of that name.
/// Errors  invalid_argument with the names.
Result<Simd> parse_simd(std::string_view name);

/// The level that a process may use on a processor that has `processor`, when HANJI_SIMD is `asked`
/// (empty: not set).
/// Errors  invalid_argument for no name of a level; unsupported for a level above the processor's.
Result<Simd> allowed_simd(Simd processor, std::string_view asked);

/// The highest level that this process may use. Its kernels begin with it.
/// Errors  as allowed_simd(), the same at each call: HANJI_SIMD is read once.
Result<Simd> usable_simd();

/// The level that the kernels of this process use now. Errors: as usable_simd().
Result<Simd> simd_in_use();

/// Whether this process may use `level`.
/// Errors  unsupported, with both levels and the way out, for one above usable_simd(); as that.
Status check_simd(Simd level);

/// Makes all kernels of this process use `level`, for every thread: those of libhwy, ours among
/// them. Call it between kernels.
/// Errors  as check_simd().
Status use_simd(Simd level);

}  // namespace hanji::base
