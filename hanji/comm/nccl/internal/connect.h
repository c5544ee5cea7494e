#pragma once

#include <memory>

#include "hanji/comm/nccl/internal/nccl_engine.h"

namespace hanji::comm::nccl {

/// What all groups on one device of a rank have in common.
struct Ground {
  std::shared_ptr<const Library> library;
  std::shared_ptr<Stream> stream;
  c10::Device device;
};

/// Connects the ranks of `meet`: rank 0's id travels over a group made for it, and so do the
/// descriptions of all calls.
/// Errors  throws Error with what NCCL says.
Parts connect_all(const Ground& ground, const Group& meet);

/// The ranks of `meet` as a group. Subgroups connect anew.
/// Errors  as connect_all().
Group group_over(const Ground& ground, const Group& meet, GroupOptions options);

}  // namespace hanji::comm::nccl
