#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/topology/machine.h"

namespace hanji::topology {

/// A link of this host that ranks share.
enum class SharedLink : uint8_t {
  kMemory,    ///< A core copies between two buffers of its own.
  kUnix,      ///< A stream of Unix sockets, from a thread to another.
  kLoopback,  ///< TCP over 127.0.0.1.
};
std::string_view name_of(SharedLink kind);

/// Bytes per second of each link while all of them are busy, in the order of `links`.
using MeasureLinks =
    std::function<Result<std::vector<double>>(const std::vector<SharedLink>& links)>;

/// Links that were busy at once.
struct LinksAtOnce {
  std::vector<SharedLink> links{};
  std::vector<double> alone{};     ///< Bytes per second of each with no other busy; 0: not known.
  std::vector<double> together{};  ///< And with all of them; empty: see `unknown`.
  std::string unknown{};

  /// What is left of the rates alone: 1 is no contention. 0: not known.
  double ratio() const;
};

struct Contention {
  std::vector<LinksAtOnce> rows{};
  double seconds = 0;  ///< What measuring took.
};

/// Which links are measured at once on so many cores: two of each kind, as many as cores, and each pair of kinds.
std::vector<std::vector<SharedLink>> links_at_once(int cores);

/// Measures each kind alone and links_at_once(`cores`), in three rounds of all of them: medians.
///
/// Cost    about 0.15 s per figure and round; after `budget` no more are measured, and a figure without a round has
///         that reason.
/// Errors  none: what cannot be measured is unknown with its reason.
Contention measure_contention(int cores, const MeasureLinks& measure,
                              std::chrono::nanoseconds budget = std::chrono::seconds(6));

/// The links of this host. Memory is copied between buffers of `bytes` each, which should be beyond the last cache.
/// Thread  starts threads of its own, one or two for each link, and ends them; copies are pinned to the first cores.
MeasureLinks host_links(const Machine& machine, int64_t bytes);

/// A table: links, each alone, each together, the ratio.
std::string contention_text(const Contention& found, int columns = base::kTerminalColumns);

}  // namespace hanji::topology
