#pragma once

#include <cstdint>
#include <vector>

namespace hanji::data::internal {

/// numpy.random.default_rng(seed).permutation(count), number by number.
///
/// Source  numpy 2.4: SeedSequence (O'Neill, "Developing a seed_seq alternative", 2015), PCG64 XSL-RR
///         (O'Neill, HMC-CS-2014-0905), a Fisher-Yates shuffle from the end with masked rejection.
std::vector<int64_t> numpy_permutation(uint64_t seed, int64_t count);

}  // namespace hanji::data::internal
