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

/// Connects two ranks of `meet`, the first of which sends, while this one goes on: ranks open the
/// ways of their messages in different orders, and NCCL connects no sooner than both have come.
Parts connect_two(const Ground& ground, int sender, int receiver, const Group& meet);

/// The ranks of `meet` as a group. Subgroups connect anew, and so do two ranks at their first
/// message.
/// Errors  as connect_all().
Group group_over(const Ground& ground, const Group& meet, GroupOptions options);

}  // namespace hanji::comm::nccl
