#pragma once

#include <cstdint>
#include <span>

#include "hanji/data/order.h"

namespace hanji::data::internal {

/// Sends each of `values` once through the Feistel network of `order`, whose round function of `right` is
/// base::mix(key, right) in its low half_bits().
void encrypt(const Permutation& order, std::span<uint64_t> values);

}  // namespace hanji::data::internal
