#pragma once

#include <optional>

#include "hanji/cli/exercises/judges.h"
#include "hanji/topology/gpu_rates.h"
#include "hanji/topology/graph.h"
#include "hanji/topology/measure_cores.h"

namespace hanji::cli {

/// What a host says of memory, cores and its GPUs; `gpu`: the first one, if it was measured. The rest is not measured.
LinkFacts facts_of_host(const topology::Graph& graph, const topology::CoreRates& rates,
                        const std::optional<topology::GpuRates>& gpu);

}  // namespace hanji::cli
