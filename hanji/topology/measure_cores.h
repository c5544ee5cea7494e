#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hanji/topology/contention.h"
#include "hanji/topology/graph.h"
#include "hanji/topology/machine.h"
#include "hanji/topology/pair_kinds.h"

namespace hanji::topology {

/// What two CPUs were measured to do; where one of the two figures is 0, `unknown` says why.
struct PairRate {
  CpuPair pair{};
  double latency_seconds = 0;   ///< From a store on one to its sight on the other.
  double bytes_per_second = 0;  ///< `second` copies what `first` wrote; a byte copied counts once.
  std::string unknown{};
};

/// Copies at once, each core its own buffers.
struct CopyRate {
  int num_copies = 1;
  double bytes_per_second = 0;  ///< All copies together; 0: see `unknown`.
  std::string unknown{};
};

struct CoreRates {
  int64_t bytes = 0;        ///< Size of each buffer: twice the last cache where memory allows.
  int64_t cache_bytes = 0;  ///< Size of the last cache; 0: not known.
  std::vector<PairRate> pairs{};
  std::vector<CopyRate> copies{};
  double seconds = 0;                      ///< What measuring took.
  std::optional<Contention> contention{};  ///< Contention of links; measure_cores() leaves it out.
};

/// Measures one pair of usable CPUs of each kind, then copies on 1 to all usable cores.
///
/// Cost    about 0.2 s per figure; after `budget` the rest is left out, each with that reason.
/// Errors  none: what cannot be measured (pinning refused, no memory, a CPU that others hold) is
///         unknown with its reason.
/// Thread  starts threads of its own and ends them; the caller's affinity stays.
CoreRates measure_cores(const Graph& graph, const Machine& machine,
                        std::chrono::nanoseconds budget = std::chrono::seconds(4));

std::string core_rates_text(const CoreRates& rates);
std::string core_rates_json(const CoreRates& rates);

}  // namespace hanji::topology
