#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "hanji/topology/rank_order.h"

namespace hanji::topology {

/// What holds the calling thread: its host, then the package, NUMA node and last-level cache that all
/// CPUs of its affinity mask share. Ranks tell each other theirs, and order_ranks() takes them all.
///
/// Result  {"host:4f...", "package:0", "memory:0", "cache:0"}; a part that differs between the CPUs, or
///         is not known, ends the path. A network namespace is a host of its own.
/// Cost    a few files per CPU of the mask: some 0.1 ms for a pinned rank.
RankPath place_of_caller(const std::filesystem::path& root = "/");

/// A path as one line of text, and back.
std::string to_line(const RankPath& path);
RankPath path_from_line(std::string_view line);

}  // namespace hanji::topology
