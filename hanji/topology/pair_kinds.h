#pragma once

#include <string_view>
#include <vector>

#include "hanji/topology/graph.h"

namespace hanji::topology {

/// How near two logical CPUs are: the smallest part that holds both.
enum class PairKind { kSameCore, kSameCache, kSameNuma, kOtherNuma, kOtherPackage };

std::string_view name_of(PairKind kind);

struct CpuPair {
  PairKind kind = PairKind::kSameCore;
  int first = 0, second = 0;  ///< Logical CPUs.
  bool operator==(const CpuPair&) const = default;
};

/// One pair of the allowed CPUs for every kind that this host has, nearest kind first; of equals
/// that with the lowest numbers.
std::vector<CpuPair> representative_pairs(const Graph& graph, const std::vector<int>& cpus);

/// How many copies to run at once among n cores: 1 to n for n <= 8, else powers of 2 and n.
std::vector<int> copy_counts(int num_cores);

}  // namespace hanji::topology
