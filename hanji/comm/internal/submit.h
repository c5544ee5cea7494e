#pragma once

#include <array>
#include <string>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/work.h"

namespace hanji::comm {

/// Throws Error(kInvalidArgument), naming the call and its site.
[[noreturn]] void refuse(const Request& request, const std::string& why);

/// What every call says about itself; its tensors and counts are still to come.
Request open_request(schedule::Routine routine, const CallOptions& options,
                     const std::source_location& call_site);
Request open_request(schedule::Routine routine, const AllReduceOptions& options,
                     const std::source_location& call_site);

/// Refuses a tensor that no collective can serve: undefined, not strided, not contiguous, part of
/// an autograd graph, or on a device that the group's engine does not move.
void check_tensor(const at::Tensor& tensor, std::string_view role, const Request& request,
                  const Group& group);

/// The dtype of elements that are reduced; refuses one that nobody here can add.
DType reduced_dtype(c10::ScalarType type, const Request& request);

/// Refuses unless `tensor` has `expected` elements.
void check_count(const at::Tensor& tensor, std::string_view role, int64_t expected,
                 const Request& request);

/// True if two contiguous tensors share a byte.
bool overlap(const at::Tensor& a, const at::Tensor& b);

/// Refuses an input and output of two dtypes or devices, and overlap, except where the input's
/// element `input_offset` is the output's element `output_offset`.
void check_pair(const Request& request, int64_t input_offset, int64_t output_offset);

/// Hands the request to the group, or to the batch that is open there. The output's version counter
/// moves, as after any write in place.
Work submit(Request&& request, const Group& group);
/// The same of a call that is carried out as GroupState::prepare() said, while no batch is open.
Submitted start(Request& request, const Choice& choice, const Group& group);

/// A message's route: a channel, the group that it was called on, and its ends there.
struct P2pRoute {
  Group channel;
  Group called_on;
  std::array<int, 2> ends;
};
Work submit_message(Request&& request, const P2pRoute& route);

/// The same if another rank waits for this call and no call of the group is open; else a Work that
/// was not begun.
Work submit_if_called(Request request, const Group& group);

}  // namespace hanji::comm
