#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
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
/// Cost    a tensor in the heap: the receiver copies it, also while the sender computes and makes no
///         call; 7 messages of a pair may wait so. Of other memory: staged by both ends.
///         Between hosts: the ends compare their calls, then one message.
/// Errors  throws Error(kInvalidArgument) for a rank that is no other rank of the group; else as
///         all_reduce() and Work::wait(). After an error the messages between these two ranks are over.
Work send(const at::Tensor& tensor, int to, const Group& group, const CallOptions& options = {},
          std::source_location call_site = std::source_location::current());

/// Replaces `tensor` by what the rank `from` of `group` sends; as send().
Work recv(at::Tensor& tensor, int from, const Group& group, const CallOptions& options = {},
          std::source_location call_site = std::source_location::current());

/// What recv_if_sent() and recv_any() found.
struct Received {
  int from = -1;  ///< Rank of the group whose message it is; -1: none waits.
  Work work;
};

/// Takes the next message of any rank of `group` that is sending to this one, as recv(); of several
/// the one that comes first after rank `after`. Never waits.
Received recv_if_sent(at::Tensor& tensor, const Group& group, int after = -1,
                      const CallOptions& options = {},
                      std::source_location call_site = std::source_location::current());

/// Waits until any other rank of `group` sends, and replaces `tensor` by that message.
///
/// Result  the rank that sent it.
/// Errors  as recv(), at once; throws Error(kTimeout) if nobody sends within the group's deadline,
///         Error(kUnsupported) over engines without shared memory.
int recv_any(at::Tensor& tensor, const Group& group, const CallOptions& options = {},
             std::source_location call_site = std::source_location::current());

/// What this rank's messages have cost it, which Group::stats() leaves out: of `group`, and of every
/// group that came out of the same one.
///
/// Result  absent as Stats::times is, and over engines without shared memory. What recv_any() waits
///         is in none of them.
std::optional<CallTimes> message_times(const Group& group);

}  // namespace hanji::comm
