#pragma once

#include "hanji/compute/internal/tile_attention_kernels.h"

// The door to libtorch's products of small matrices of bf16, which oneDNN generates for the processor:
// tiles of AMX, else vectors of AVX-512.
namespace hanji::compute::internal {

/// Whether this process has such products. They are tried once, on a product whose result is known: libtorch
/// does not say where it would refuse them.
bool has_tile_products();

/// The product. A thread's first of a shape generates its code, in about 0.1 ms.
/// Errors  throws c10::Error without has_tile_products().
void tile_product(const TileShape& shape, const BFloat16* a, const BFloat16* b, float* c);

/// Hands a thread's tile registers back when it ends: whatever multiplies next sets its own.
class TileRegisters {
 public:
  TileRegisters() = default;
  ~TileRegisters();
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

}  // namespace hanji::compute::internal
