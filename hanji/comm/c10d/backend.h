#pragma once

#include <c10/util/intrusive_ptr.h>

#include "hanji/comm/group.h"

namespace c10d {
class Backend;
}

namespace hanji::comm::c10d {

/// `group` as a c10d backend, enough for ProcessGroup, Reducer and Python's DDP.
///
/// Serves  allreduce (and coalesced), broadcast, allgather, _allgather_base, _reduce_scatter_base,
///         their coalesced forms, barrier. Others throw, as c10d's default does.
/// Result  futures over a list of tensors; they complete unwaited, moved by the group's thread.
/// Errors  throws Error(kInvalidArgument) unless the group was made with Progress::kThread.
c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& group);

}  // namespace hanji::comm::c10d
