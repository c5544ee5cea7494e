#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layout/unit.h"
#include "hanji/parallel/fsdp/internal/unit_memory.h"

namespace hanji::parallel {

/// Between a unit's forward and its backward: a copy of it, cut over a few ranks of the group.
/// Backward gathers it among these, instead of from all that have shards.
class SecondaryShard {
 public:
  /// A collective of the secondary group.
  SecondaryShard(const UnitPart& part, const comm::Group& secondary);

  /// Copies this rank's part of the unit.
  void keep(const at::Tensor& whole);
  void drop() { part_.reset(); }
  bool is_kept() const { return part_.defined(); }
  /// Gathers what all ranks of the group keep. `whole` has the dtype in which the unit is computed.
  comm::Work gather(at::Tensor& whole) { return gather_.start(whole, part_); }

 private:
  layout::Unit plan_;  ///< Cut over the group.
  comm::Group secondary_;
  comm::Call gather_;
  at::Tensor part_;
};

}  // namespace hanji::parallel
