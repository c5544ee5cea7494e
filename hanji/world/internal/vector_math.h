#pragma once

namespace hanji::world {

/// Calls each of libtorch's vectorised functions of MKL once, on one element in float32 and float64. MKL
/// looks for the code of a function at its first call; where several threads make that call at once, one of
/// them may run code of half the precision for all its elements (PyTorch issue 188792). Ranks that are
/// threads and operations of several threads would then give other bits from run to run.
/// Cost    one or two milliseconds, once per process.
/// Thread  any; a second caller waits for the first.
void resolve_vector_math();

}  // namespace hanji::world
