#pragma once

#include <memory>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/nccl/internal/nccl_engine.h"

namespace hanji::comm::nccl {

/// What all groups on one device of a rank have in common.
struct Ground {
  std::shared_ptr<const Library> library;
  StreamSource new_stream;  ///< One for the collectives of a group, and one for each way.
  c10::Device device;
};

/// An id on its way. Its first byte says whether there is one, so that all ranks fail together.
at::Tensor empty_letter();
/// With a new id; `status` is what NCCL said to that.
at::Tensor write_id(const Library& library, Status& status);

/// Blocks until all ranks of the id in `letter` have come; on any thread.
Result<Comm> open_comm(const Parts& parts, const at::Tensor& letter, const Status& status);

/// Parts without a communicator, with a stream of their own.
Parts parts_on(const Ground& ground, int rank, int size);

/// Connects the ranks of `meet`: rank 0's id travels over a group made for it, and so do the
/// descriptions of all calls.
/// Errors  throws Error with what NCCL says.
Parts connect_all(const Ground& ground, const Group& meet);

/// The ranks of `meet` as a group. Subgroups connect anew, and so do two ranks at their first
/// message; waits for one of them drive the others of `family`.
/// Errors  as connect_all().
Group group_over(const Ground& ground, const Group& meet, GroupOptions options,
                 std::shared_ptr<GroupFamily> family = std::make_shared<GroupFamily>());

}  // namespace hanji::comm::nccl
