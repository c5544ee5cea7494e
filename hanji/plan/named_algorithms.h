#pragma once

#include "hanji/cost/named_algorithm.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// The algorithms that the configuration names, by routine; without routines that it does not set.
cost::NamedAlgorithms named_algorithms(const CommConfig& comm);

}  // namespace hanji::plan
