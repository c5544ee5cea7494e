#include "hanji/comm/nccl/internal/device_walk.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <algorithm>
#include <vector>

#include "hanji/comm/dtype.h"
#include "hanji/shm/reduce.h"

namespace hanji::comm::nccl {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::ReduceOp;
using schedule::Step;
using schedule::StepKind;

at::Tensor flat(const at::Tensor& tensor, c10::ScalarType type) {
  return tensor.defined() ? tensor.detach().view(-1).view(type) : tensor;
}

at::Tensor combine(ReduceOp op, const at::Tensor& left, const at::Tensor& right) {
  switch (op) {
    case ReduceOp::kMin: return at::minimum(left, right);
    case ReduceOp::kMax: return at::maximum(left, right);
    case ReduceOp::kProd: return at::mul(left, right);
    case ReduceOp::kBitAnd: return at::bitwise_and(left, right);
    case ReduceOp::kBitOr: return at::bitwise_or(left, right);
    case ReduceOp::kBitXor: return at::bitwise_xor(left, right);
    default: return at::add(left, right);
  }
}

class Walk {
 public:
  Walk(const Channel& channel, const Request& request, const schedule::StepList& list)
      : channel_(channel),
        request_(request),
        list_(list),
        type_(to_scalar_type(request.dtype)),
        input_(flat(request.input, type_)),
        output_(flat(request.output, type_)) {
    const at::Tensor& given = request.input.defined() ? request.input : request.output;
    const auto options = given.options().dtype(type_).requires_grad(false);
    // A group of one, and a rank that only gives, have no use for one of them: a bucket's size each.
    if (uses(Place::kSlot)) slot_ = at::empty({list.slot_elements}, options);
    if (uses(Place::kResult)) result_ = at::empty({list.slot_elements}, options);
  }

  Status run();

 private:
  bool uses(Place place) const;
  at::Tensor view(const Operand& operand, int64_t count) const;
  std::byte* address(const Step& step) const;
  size_t end_of_messages(size_t begin) const;
  Status exchange(size_t begin, size_t end) const;
  Status post(const Step& step) const;
  void copy(const Step& step) const;
  void reduce(const Step& step) const;

  const std::vector<Step>& steps() const { return list_.per_rank[channel_.rank]; }

  const Channel& channel_;
  const Request& request_;
  const schedule::StepList& list_;
  const c10::ScalarType type_;
  at::Tensor input_, output_, slot_, result_;
};

bool Walk::uses(Place place) const {
  const auto is_there = [&](const Operand& one) { return one.place == place; };
  return std::ranges::any_of(steps(), [&](const Step& step) {
    return std::ranges::any_of(step.from, is_there) || std::ranges::any_of(step.to, is_there);
  });
}

Status Walk::run() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < steps().size();) {
    const Step& step = steps()[i];
    if (is_message(step.kind)) {
      const size_t end = end_of_messages(i);
      HANJI_RETURN_IF_ERROR(exchange(i, end));
      i = end;
      continue;
    }
    if (step.count > 0) step.kind == StepKind::kCopy ? copy(step) : reduce(step);
    ++i;
  }
  return {};
}

at::Tensor Walk::view(const Operand& operand, int64_t count) const {
  const auto whole = [&]() -> const at::Tensor& {
    switch (operand.place) {
      case Place::kInput: return input_;
      case Place::kOutput: return output_;
      case Place::kSlot: return slot_;
      case Place::kResult: return result_;
    }
    throw Error(base::internal("unknown place in a step list"));
  };
  return whole().narrow(0, operand.part * request_.input_stride + operand.begin, count);
}

std::byte* Walk::address(const Step& step) const {
  const Operand& operand = step.kind == StepKind::kRecv ? step.to[0] : step.from[0];
  return static_cast<std::byte*>(view(operand, step.count).data_ptr());
}

/// Messages in a row are under way at once as long as no receive touches what another one moves.
size_t Walk::end_of_messages(size_t begin) const {
  size_t end = begin;
  const auto width = static_cast<int64_t>(base::size_of(request_.dtype));
  const auto collide = [&](const Step& a, const Step& b) {
    if (a.count == 0 || b.count == 0) return false;
    if (a.kind == StepKind::kSend && b.kind == StepKind::kSend) return false;
    return address(a) < address(b) + b.count * width && address(b) < address(a) + a.count * width;
  };
  while (end < steps().size() && is_message(steps()[end].kind)) {
    const auto first = steps().begin() + static_cast<ptrdiff_t>(begin);
    const auto last = steps().begin() + static_cast<ptrdiff_t>(end);
    if (std::any_of(first, last, [&](const Step& other) { return collide(other, steps()[end]); })) {
      break;
    }
    ++end;
  }
  return end;
}

Status Walk::exchange(size_t begin, size_t end) const {
  const Library& library = *channel_.library;
  HANJI_RETURN_IF_ERROR(library.status(library.api().group_start(), "ncclGroupStart"));
  Status status;
  for (size_t i = begin; i < end && status.ok(); ++i) {
    if (steps()[i].count > 0) status = post(steps()[i]);
  }
  const Status ended = library.status(library.api().group_end(), "ncclGroupEnd", channel_.comm);
  return status.ok() ? ended : status;
}

Status Walk::post(const Step& step) const {
  const Library& library = *channel_.library;
  const Type type = type_of(request_.dtype);
  if (step.kind == StepKind::kRecv) {
    return library.status(library.api().recv(address(step), step.count, type, step.peer,
                                             channel_.comm, channel_.stream),
                          "ncclRecv", channel_.comm);
  }
  return library.status(library.api().send(address(step), step.count, type, step.peer,
                                           channel_.comm, channel_.stream),
                        "ncclSend", channel_.comm);
}

void Walk::copy(const Step& step) const {
  const at::Tensor from = view(step.from[0], step.count);
  for (const Operand& to : step.to) {
    at::Tensor target = view(to, step.count);
    if (target.data_ptr() != from.data_ptr()) target.copy_(from);
  }
}

void Walk::reduce(const Step& step) const {
  const bool small = is_floating(request_.dtype) && base::size_of(request_.dtype) < 4;
  const bool rounds = small && shm::rounding_of(request_.routine) == shm::Rounding::kEveryNode;
  std::vector<at::Tensor> stack;
  for (const int operand : step.tree) {
    if (operand >= 0) {
      const at::Tensor one = view(step.from[operand], step.count);
      stack.push_back(small ? one.to(at::kFloat) : one);
      continue;
    }
    const at::Tensor right = stack.back();
    stack.pop_back();
    const at::Tensor node = combine(request_.op, stack.back(), right);
    stack.back() = rounds ? node.to(type_).to(at::kFloat) : node;
  }
  at::Tensor sum = stack.back();
  if (request_.op == ReduceOp::kAvg && step.kind == StepKind::kReduce) {
    const auto divisor = static_cast<int64_t>(step.from.size());
    sum = is_floating(request_.dtype) ? at::div(sum, divisor) : at::div(sum, divisor, "trunc");
  }
  for (const Operand& to : step.to) view(to, step.count).copy_(sum);
}

}  // namespace

Status walk(const Channel& channel, const Request& request, const schedule::StepList& list) {
  return Walk(channel, request, list).run();
}

}  // namespace hanji::comm::nccl
