#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/operation.h"

namespace hanji::cost {

/// Algorithms that the user named, by routine: they are taken whatever they cost.
using NamedAlgorithms = std::map<schedule::Routine, std::string>;

/// Whether ranks reach each other's memory, or send messages.
enum class Medium : uint8_t { kMemory, kMessages };

/// Names that a routine's algorithms have there; none for barrier and tree_reduce.
std::vector<std::string_view> algorithm_names(schedule::Routine routine, Medium medium);

/// Where a named algorithm is to run.
struct NamedUse {
  schedule::Routine routine = schedule::Routine::kAllReduce;
  std::string algorithm;
  Medium medium = Medium::kMemory;
  int ranks = 0;            ///< 0: not known yet, any number from 2 on.
  bool needs_order = true;  ///< Sums must be those of schedule::pairwise_tree().
};

/// Errors  invalid_argument for a name that the routine has not there, with the nearest one, and for
///         an algorithm that adds in another order where the order is promised.
Status check_named(const NamedUse& use);

}  // namespace hanji::cost
