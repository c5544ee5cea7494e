#include "hanji/compute/internal/tile_products.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <array>
#include <exception>

namespace hanji::compute::internal {
namespace {

namespace blas = at::native::cpublas;

const at::BFloat16* torch_halves(const BFloat16* p) {
  static_assert(sizeof(at::BFloat16) == sizeof(BFloat16));
  return reinterpret_cast<const at::BFloat16*>(p);
}

/// Multiplies ones and twos, whose sums are exact in any order.
bool multiplies() {
  constexpr int64_t kSize = 32;
  constexpr uint16_t kOne = 0x3F80, kTwo = 0x4000;
  std::array<BFloat16, kSize * kSize> a, b;
  std::array<float, kSize* kSize> c = {};
  a.fill({kOne});
  for (size_t i = 0; i < b.size(); ++i) b[i] = {i % 2 == 0 ? kOne : kTwo};
  try {
    const TileRegisters registers;
    tile_product({kSize, kSize, kSize, kSize, kSize, kSize, false}, a.data(), b.data(), c.data());
  } catch (const std::exception&) {
    return false;
  }
  return std::ranges::all_of(c, [](float sum) { return sum == kSize / 2 * (1 + 2); });
}

}  // namespace

bool has_tile_products() {
  static const bool known = multiplies();
  return known;
}

void tile_product(const TileShape& s, const BFloat16* a, const BFloat16* b, float* c) {
  blas::brgemm(s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.adds, torch_halves(a), torch_halves(b), c,
               /*is_vnni=*/true);
}

TileRegisters::~TileRegisters() { blas::brgemm_release(/*is_vnni=*/true); }

}  // namespace hanji::compute::internal
