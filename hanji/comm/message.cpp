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

Work give(Request request, const at::Tensor& tensor, const Way& way) {
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = tensor.numel() * moved.per_element;
  return submit_message(std::move(request), way);
}

}  // namespace

Work send(const at::Tensor& tensor, int to, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request = open_request(schedule::Routine::kSend, options, call_site);
  request.input = tensor;
  check_tensor(tensor, "tensor", request, group);
  const Way way{channel("send", to, true, group), group, {group.rank(), to}};
  return give(std::move(request), tensor, way);
}

Work recv(at::Tensor& tensor, int from, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request = open_request(schedule::Routine::kSend, options, call_site);
  request.output = tensor;
  check_tensor(tensor, "tensor", request, group);
  const Way way{channel("recv", from, false, group), group, {from, group.rank()}};
  return give(std::move(request), tensor, way);
}

}  // namespace hanji::comm
