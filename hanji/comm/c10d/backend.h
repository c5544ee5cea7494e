#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace hanji::comm::c10d {

/// Meets the ranks of a new group at a store that they share: `rank` of `size`.
using Meet = std::function<c10::intrusive_ptr<::c10d::Backend>(
    const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const std::string& name)>;

struct BackendOptions {
  std::chrono::milliseconds timeout{0};  ///< Of calls that bring none; 0: the group's deadline.
  /// Where monitoredBarrier() meets, which must not depend on the ranks it reports on.
  c10::intrusive_ptr<::c10d::Store> store;
  std::function<void(const Status&)> abort{};  ///< Ends the waits of all ranks with these words.
  Meet meet{};                                 ///< Makes the groups of split() and merge().
  std::shared_ptr<void> owner{};               ///< Dropped after the group, by shutdown().
};

/// `group` as a c10d backend: ProcessGroup, Reducer, Python's DDP, FSDP2, DTensor and pipelining run
/// on it unchanged.
///
/// Shape   dense CPU tensors; those that are not contiguous are moved by way of a copy. int8, int16
///         and bool are reduced as wider integers, complex as pairs of real numbers, and all_reduce
///         takes sparse COO tensors, which it gathers. allocateTensor() gives tensors of the group's
///         heap, so that the buckets of Reducer and DDP are moved in place.
/// Result  futures over a list of tensors; they complete unwaited, moved by the group's thread.
/// Order   as Group; messages are matched in order for each pair of ranks, and their tags must
///         agree. alltoall() and calls with splits first wait for all ranks to have called them.
/// Errors  throws Error(kInvalidArgument) unless the group was made with Progress::kThread. Its
///         calls throw Error for arguments; works end with c10::DistBackendError, in hanji's words.
c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& group, BackendOptions options = {});

}  // namespace hanji::comm::c10d
