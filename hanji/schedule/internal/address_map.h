#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Are a rank's input and output the same memory?
enum class Aliasing : uint8_t { kSeparate, kInPlace };

struct Address {
  int space = 0;  ///< Operands of different spaces never share memory.
  int64_t begin = 0;
};

/// Where operands lie in memory.
class AddressMap {
 public:
  AddressMap(const StepList& list, std::vector<int> parts_of_rank, Aliasing aliasing);

  Address locate(const Operand& operand) const;
  int num_spaces() const { return num_spaces_; }

 private:
  /// In place, a rank's narrow buffer begins inside its wide one.
  struct Nesting {
    bool output_is_wide = false;
    int64_t begin = 0;
  };
  std::vector<Nesting> nestings_;  ///< Per rank; empty: nothing is shared.
  std::vector<int> parts_;
  std::vector<int> first_space_;  ///< Per rank: its parts, then output, slot, result.
  int num_spaces_ = 0;
};

/// Inputs of each rank: 1, or for a tree_reduce the partials of its fold.
std::vector<int> parts_per_rank(const StepList& list);

/// One read or write of one rank between two syncs.
struct Access {
  Address at;
  int64_t end = 0;
  int rank = 0;
  bool write = false;
};

/// Refuses accesses of two ranks to one element of which one is a write. Sorts `accesses`.
Status check_races(std::vector<Access>& accesses);

}  // namespace hanji::schedule::internal
