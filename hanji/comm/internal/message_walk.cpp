#include "hanji/comm/internal/message_walk.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "hanji/shm/reduce.h"

namespace hanji::comm {

using schedule::Operand;
using schedule::Place;
using schedule::Step;
using schedule::StepKind;

namespace {

/// Room in one of a rank's own places for its steps, if any of them names it.
at::Tensor room_in(Place place, const std::vector<Step>& steps, int64_t bytes) {
  const auto is_there = [&](const Operand& operand) { return operand.place == place; };
  const bool is_named = std::ranges::any_of(steps, [&](const Step& step) {
    return std::ranges::any_of(step.from, is_there) || std::ranges::any_of(step.to, is_there);
  });
  return at::empty({is_named ? bytes : 0}, at::kByte);
}

}  // namespace

Status check_steps(const schedule::StepList& list, int rank, schedule::ReduceOp op) {
  if (op == schedule::ReduceOp::kAvg && makes_partial_sums(list)) {
    return base::unsupported(fmt::format(
        "step list {} makes partial sums, which cannot be averaged; reduce by sum and divide",
        list.algorithm));
  }
  for (const Step& step : list.per_rank[rank]) {
    const auto is_mine = [rank](const Operand& operand) { return operand.rank == rank; };
    if (step.kind != StepKind::kSync && std::ranges::all_of(step.from, is_mine) &&
        std::ranges::all_of(step.to, is_mine)) {
      continue;
    }
    return base::unsupported(
        fmt::format("step list {} has a {} over the memory of several ranks, which an engine "
                    "between processes cannot carry out",
                    list.algorithm, schedule::name_of(step.kind)));
  }
  return {};
}

MessageWalk::MessageWalk(Wire& wire, const Request& request, const schedule::StepList& list)
    : wire_(wire),
      request_(request),
      steps_(list.per_rank[wire.rank()]),
      element_bytes_(static_cast<int64_t>(base::size_of(request.dtype))),
      slot_(room_in(Place::kSlot, steps_, list.slot_elements * element_bytes_)),
      result_(room_in(Place::kResult, steps_, list.slot_elements * element_bytes_)) {}

bool MessageWalk::advance() {
  for (; next_ < steps_.size(); ++next_) {
    const Step& step = steps_[next_];
    if (step.count == 0) continue;
    if (is_message(step.kind)) {
      if (!post(step)) return false;
      continue;
    }
    if (!open_are_done()) return false;
    step.kind == StepKind::kCopy ? copy(step) : reduce(step);
  }
  return open_are_done();
}

std::vector<int> MessageWalk::waits_for() const {
  std::vector<int> peers;
  for (const Open& open : open_) {
    const bool known = std::ranges::find(peers, open.peer) != peers.end();
    if (!open.over && !known) peers.push_back(open.peer);
  }
  return peers;
}

std::byte* MessageWalk::address(const Operand& operand) const {
  const auto start = [&]() -> void* {
    switch (operand.place) {
      case Place::kInput: return request_.input.data_ptr();
      case Place::kOutput: return request_.output.data_ptr();
      case Place::kSlot: return slot_.data_ptr();
      case Place::kResult: return result_.data_ptr();
    }
    throw Error(base::internal("unknown place in a step list"));
  };
  const int64_t element = operand.part * request_.input_stride + operand.begin;
  return static_cast<std::byte*>(start()) + element * element_bytes_;
}

bool MessageWalk::post(const Step& step) {
  const bool is_receive = step.kind == StepKind::kRecv;
  std::byte* begin = address(is_receive ? step.to[0] : step.from[0]);
  const int64_t bytes = step.count * element_bytes_;
  const bool collides = std::ranges::any_of(open_, [&](const Open& other) {
    return (is_receive || other.is_receive) && begin < other.end && other.begin < begin + bytes;
  });
  if (collides && !open_are_done()) return false;
  auto pending =
      is_receive ? wire_.receive(begin, bytes, step.peer) : wire_.send(begin, bytes, step.peer);
  open_.push_back({begin, begin + bytes, is_receive, step.peer, std::move(pending)});
  return true;
}

void MessageWalk::copy(const Step& step) const {
  const std::byte* from = address(step.from[0]);
  for (const Operand& to : step.to) {
    if (address(to) != from) std::memmove(address(to), from, step.count * element_bytes_);
  }
}

void MessageWalk::reduce(const Step& step) const {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Operand& operand : step.from) from.push_back(address(operand));
  for (const Operand& operand : step.to) to.push_back(address(operand));
  shm::reduce(request_.dtype, request_.op, from, step.tree, to, step.count,
              {.rounding = shm::rounding_of(request_.routine)});
}

bool MessageWalk::open_are_done() {
  for (Open& open : open_) open.over = open.over || open.pending->done();
  std::erase_if(open_, [](const Open& open) { return open.over; });
  return open_.empty();
}

}  // namespace hanji::comm
