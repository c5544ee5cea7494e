#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Gives `tensor` to the rank `to` of `group`, whose recv() takes it.
///
/// Shape   any, contiguous; both ends have the same number of elements, dtype and tag, or wait()
///         throws Error(kMismatch) on both, naming both calls, before a byte is used.
/// Order   starts before returning. The nth send from one rank to another meets its nth recv,
///         whatever group they are called on; other calls of either rank may come in between. It
///         is complete when the receiver has taken it, so two ranks that send to each other
///         receive before they wait.
/// Cost    in the heap: 2 syncs, one copy of which each end makes half.
///         Between hosts: the ends compare their calls, then one message.
/// Errors  throws Error(kInvalidArgument) for a rank that is no other rank of the group; else as
///         all_reduce() and Work::wait(). After an error the messages between these two ranks are over.
Work send(const at::Tensor& tensor, int to, const Group& group, const CallOptions& options = {},
          std::source_location call_site = std::source_location::current());

/// Replaces `tensor` by what the rank `from` of `group` sends; as send().
Work recv(at::Tensor& tensor, int from, const Group& group, const CallOptions& options = {},
          std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
