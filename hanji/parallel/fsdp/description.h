#pragma once

#include <string>

#include "hanji/parallel/fsdp/sharded.h"

namespace hanji::parallel {

/// Who holds what, in words: a line per unit, and what it costs to make one whole.
std::string describe(const Sharded& sharded);

}  // namespace hanji::parallel
