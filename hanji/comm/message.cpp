#include "hanji/comm/message.h"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/submit.h"
#include "hanji/comm/stats.h"

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
  return Group(group.state()->connect()(
      {sender, receiver, group.options().rank_names.part({sender, receiver})}));
}

/// A channel may be older than the group, and its deadline another.
Work give(Request request, const at::Tensor& tensor, const P2pRoute& route) {
  if (request.deadline.count() == 0) request.deadline = route.called_on.options().deadline;
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = tensor.numel() * moved.per_element;
  return submit_message(std::move(request), route);
}

}  // namespace

Work send(const at::Tensor& tensor, int to, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request = open_request(schedule::Routine::kSend, options, call_site);
  request.input = tensor;
  check_tensor(tensor, "tensor", request, group);
  const P2pRoute route{channel("send", to, true, group), group, {group.rank(), to}};
  return give(std::move(request), tensor, route);
}

Received recv_if_sent(at::Tensor& tensor, const Group& group, int after, const CallOptions& options,
                      std::source_location call_site) {
  Request request = open_request(schedule::Routine::kSend, options, call_site);
  request.output = tensor;
  check_tensor(tensor, "tensor", request, group);
  if (!group.state()->engine().shares_memory()) {
    throw Error(base::unsupported(
        fmt::format("recv from any rank: engine {} of group {} does not tell who is sending; give "
                    "the rank to recv()",
                    group.engine(), group.name())));
  }
  const Moved moved = moved_as(tensor.scalar_type());
  request.dtype = moved.dtype;
  request.count = tensor.numel() * moved.per_element;
  for (int turn = 1; turn <= group.size(); ++turn) {
    const int from = (after + turn) % group.size();
    if (from == group.rank()) continue;
    const Group over = channel("recv from any rank", from, false, group);
    if (Work work = submit_if_called(request, over); work.begun()) return {from, std::move(work)};
  }
  return {};
}

int recv_any(at::Tensor& tensor, const Group& group, const CallOptions& options,
             std::source_location call_site) {
  const auto limit = options.deadline.count() > 0 ? options.deadline : group.options().deadline;
  const auto deadline = base::Deadline::after(limit);
  while (true) {
    Received received = recv_if_sent(tensor, group, group.rank(), options, call_site);
    if (received.from >= 0) {
      received.work.wait();
      return received.from;
    }
    if (deadline.passed()) {
      throw Error(base::timeout(
          fmt::format("recv from any rank: no other rank of group {} sent anything to rank {} "
                      "within {} s; look for the send that is missing",
                      group.name(), group.rank(), std::chrono::duration<double>(limit).count())));
    }
    group.state()->advance_others();
    std::this_thread::sleep_for(kPollInterval);
  }
}

Work recv(at::Tensor& tensor, int from, const Group& group, const CallOptions& options,
          std::source_location call_site) {
  Request request = open_request(schedule::Routine::kSend, options, call_site);
  request.output = tensor;
  check_tensor(tensor, "tensor", request, group);
  const P2pRoute route{channel("recv", from, false, group), group, {from, group.rank()}};
  return give(std::move(request), tensor, route);
}

std::optional<CallTimes> message_times(const Group& group) {
  if (!group.state()->engine().shares_memory()) return std::nullopt;
  Stats sum{.times = CallTimes()};
  GroupFamily& family = group.state()->family();
  const std::lock_guard lock(family.channels_mutex);
  for (const auto& [ends, kept] : family.channels) {
    if (const auto open = kept.lock()) add(sum, open->stats());
  }
  return sum.times;
}

}  // namespace hanji::comm
