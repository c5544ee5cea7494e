#include "hanji/comm/message.h"

#include <fmt/format.h>

#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm {
namespace {

/// What carries messages between this rank and `peer` of the group.
Group channel(const char* call, int peer, bool sends, const Group& group) {
  if (peer < 0 || peer >= group.size() || peer == group.rank()) {
    throw Error(base::invalid_argument(
        fmt::format("{}: rank {} is not another rank of group {} of {}, called by rank {}", call,
                    peer, group.name(), group.size(), group.rank())));
  }
  if (!group.state()->connect()) {
    throw Error(base::unsupported(
        fmt::format("{}: engine {} of group {} carries no messages; use a group over shared memory",
                    call, group.engine(), group.name())));
  }
  const int sender = sends ? group.rank() : peer;
  const int receiver = sends ? peer : group.rank();
  return Group(group.state()->connect()(sender, receiver));
}

Work submit_message(Request request, const at::Tensor& tensor, const Group& over) {
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = tensor.numel() * moved.per_element;
  return submit(std::move(request), over);
}

}  // namespace

Work send(const at::Tensor& tensor, int to, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request{.routine = schedule::Routine::kSend,
                  .tag = options.tag,
                  .input = tensor,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(tensor, "tensor", request, group);
  return submit_message(std::move(request), tensor, channel("send", to, true, group));
}

Work recv(at::Tensor& tensor, int from, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request{.routine = schedule::Routine::kSend,
                  .tag = options.tag,
                  .output = tensor,
                  .label = std::string(options.label),
                  .call_site = call_site};
  check_tensor(tensor, "tensor", request, group);
  return submit_message(std::move(request), tensor, channel("recv", from, false, group));
}

}  // namespace hanji::comm
