#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "hanji/base/random.h"

namespace hanji::report::test_run {

/// Value `index` of a series of independent standard normal ones: the same on every machine.
/// Source  Box & Muller, Annals of Mathematical Statistics 29(2), 1958.
inline double normal(uint64_t key, uint64_t index) {
  const auto words = base::Philox::draw(key, 0, index);
  return std::sqrt(-2 * std::log(1 - base::uniform(words[0]))) *
         std::cos(2 * std::numbers::pi * base::uniform(words[1]));
}

}  // namespace hanji::report::test_run
