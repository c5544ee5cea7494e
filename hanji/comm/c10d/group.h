#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <vector>

#include "hanji/comm/group.h"

namespace c10d {
class Backend;
}

namespace hanji::comm::c10d {

/// A group over a c10d backend of the caller, for CPU tensors.
///
/// Every call first gathers the ranks' descriptions and compares them, as the shared-memory engine
/// does; then runs the backend's own allreduce, reduce_scatter, allgather or broadcast, or, for
/// floating sums with Bits::kRun, uneven shares and all other routines, sends and receives with an
/// ordered local sum. A thread of the group calls the backend, and one per channel of messages.
/// Order   the backend must serve send, recv and those four.
/// Errors  as all_reduce() and Work::wait(). Deadlines, a call's own or the group's, are handed to the
///         backend, whose works must keep what wait() is given; kTimeout names who has not called.
/// Thread  nobody else may call the backend while the group is used.
Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, GroupOptions options = {});

/// The same with tensors of group.heap() made in `heap`, and with subgroups made by `divide`, which
/// gets an id agreed between the ranks and the members; null refuses them.
using Divide = std::function<Group(int id, const std::vector<int>& members, GroupOptions options)>;
Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, Heap heap, Divide divide,
                 GroupOptions options);

}  // namespace hanji::comm::c10d
