#include "hanji/comm/c10d/internal/step_walk.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "hanji/shm/reduce.h"

namespace hanji::comm::c10d {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;
using schedule::StepKind;

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

StepWalk::StepWalk(::c10d::Backend& backend, const Request& request, const schedule::StepList& list,
                   std::chrono::milliseconds deadline)
    : backend_(backend),
      request_(request),
      list_(list),
      deadline_(deadline),
      element_bytes_(static_cast<int64_t>(base::size_of(request.dtype))),
      slot_(at::empty({list.slot_elements * element_bytes_}, at::kByte)),
      result_(at::empty({list.slot_elements * element_bytes_}, at::kByte)) {}

StepWalk::~StepWalk() = default;

void StepWalk::run() {
  for (const Step& step : list_.per_rank[backend_.getRank()]) {
    if (step.count == 0) continue;
    if (is_message(step.kind)) {
      post(step);
      continue;
    }
    wait_for_open();
    step.kind == StepKind::kCopy ? copy(step) : reduce(step);
  }
  wait_for_open();
}

std::byte* StepWalk::address(const Operand& operand) const {
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

void StepWalk::post(const Step& step) {
  const bool is_receive = step.kind == StepKind::kRecv;
  std::byte* begin = address(is_receive ? step.to[0] : step.from[0]);
  const int64_t bytes = step.count * element_bytes_;
  const bool collides = std::ranges::any_of(open_, [&](const Open& other) {
    return (is_receive || other.is_receive) && begin < other.end && other.begin < begin + bytes;
  });
  if (collides) wait_for_open();
  Open open{begin, begin + bytes, is_receive, {at::from_blob(begin, {bytes}, at::kByte)}, {}};
  open.work = is_receive ? backend_.recv(open.tensors, step.peer, 0)
                         : backend_.send(open.tensors, step.peer, 0);
  open_.push_back(std::move(open));
}

void StepWalk::copy(const Step& step) const {
  const std::byte* from = address(step.from[0]);
  for (const Operand& to : step.to) {
    if (address(to) != from) std::memmove(address(to), from, step.count * element_bytes_);
  }
}

void StepWalk::reduce(const Step& step) const {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Operand& operand : step.from) from.push_back(address(operand));
  for (const Operand& operand : step.to) to.push_back(address(operand));
  shm::reduce(request_.dtype, request_.op, from, step.tree, to, step.count);
}

void StepWalk::wait_for_open() {
  for (Open& open : open_) open.work->wait(deadline_);
  open_.clear();
}

}  // namespace hanji::comm::c10d
