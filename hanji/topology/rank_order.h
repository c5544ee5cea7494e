#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/topology/graph.h"

namespace hanji::topology {

/// What holds a rank, from the outside in: {"host 0", "package:0", "memory:0", "cache:1"}.
using RankPath = std::vector<std::string>;

/// Reads what graph_json() wrote: one host, or a list of hosts. Of a vertex only what an order needs
/// is read: id, kind, name, parent, CPUs.
/// Errors  corrupt names what is missing.
Result<std::vector<Graph>> graphs_from_json(std::string_view text);

/// Rank r on the r-th device of all hosts in turn: GPUs by bus id where a host has some, else cores
/// by their lowest logical CPU, which is how ranks are pinned.
/// Errors  invalid_argument for more ranks than devices.
Result<std::vector<RankPath>> rank_paths(const std::vector<Graph>& hosts, int ranks);

/// A ring's order, and how many of its links lead from one part of the machine to another.
struct RankOrder {
  std::vector<int> ranks;  ///< Neighbours in the ring, the last one's is the first.
  struct Crossings {
    std::string kind;  ///< "host", "package", "memory", "bridge", ...
    int by_rank = 0;   ///< In the ring 0, 1, 2, ...
    int by_order = 0;  ///< In this one.
    bool operator==(const Crossings&) const = default;
  };
  std::vector<Crossings> crossings;  ///< From the outside in; a kind that adds nothing is left out.
};

/// Ranks of one part next to each other, part by part: no ring crosses the parts of any level less
/// often. Rank 0 is the first, parts and ranks in one of them come by their lowest rank. A binomial
/// tree over positions in this order sends between parts as seldom as it can where they are equal
/// and powers of two.
/// Source  a walk around a tree enters and leaves each part once; so does the order of NCCL's rings
///         (graph search by distance, src/graph).
RankOrder order_ranks(const std::vector<RankPath>& paths);

/// "ring 0 2 1 3 (crossings of package: 2, by rank 4)" and the tree's sends, for people.
std::string to_text(const RankOrder& order);

}  // namespace hanji::topology
