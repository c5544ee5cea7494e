#pragma once

#include "hanji/cost/named_algorithm.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// The algorithms that the configuration names, by routine; those that it leaves open are not there.
cost::NamedAlgorithms named_algorithms(const CommConfig& comm);

}  // namespace hanji::plan
