#include "hanji/comm/c10d/backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/internal/submit.h"
#include "hanji/comm/reduce_scatter.h"

namespace hanji::comm::c10d {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using ::c10d::OpType;

schedule::ReduceOp to_reduce_op(const ::c10d::ReduceOp& op) {
  switch (static_cast<::c10d::ReduceOp::RedOpType>(op)) {
    case ::c10d::ReduceOp::SUM: return schedule::ReduceOp::kSum;
    case ::c10d::ReduceOp::AVG: return schedule::ReduceOp::kAvg;
    case ::c10d::ReduceOp::MIN: return schedule::ReduceOp::kMin;
    case ::c10d::ReduceOp::MAX: return schedule::ReduceOp::kMax;
    case ::c10d::ReduceOp::PRODUCT: return schedule::ReduceOp::kProd;
    case ::c10d::ReduceOp::BAND: return schedule::ReduceOp::kBitAnd;
    case ::c10d::ReduceOp::BOR: return schedule::ReduceOp::kBitOr;
    case ::c10d::ReduceOp::BXOR: return schedule::ReduceOp::kBitXor;
    default: break;
  }
  throw Error(
      base::unsupported("hanji reduces by sum, avg, min, max, product and bits; c10d asked for "
                        "another operation"));
}

const at::Tensor& only(const Tensors& tensors) {
  if (tensors.size() == 1) return tensors[0];
  throw Error(
      base::unsupported(fmt::format("a call of c10d brings one tensor per rank here, and "
                                    "brought {}; use the coalesced form",
                                    tensors.size())));
}

/// c10d's view of our Work: complete when the group says so, with a future over its tensors.
class GroupWork final : public ::c10d::Work {
 public:
  GroupWork(int rank, OpType op, Tensors outputs)
      : ::c10d::Work(rank, op),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  void complete(const Status& status) {
    if (status.ok()) {
      future_->markCompleted(c10::IValue(outputs_));
      finish();
    } else {
      const auto error = std::make_exception_ptr(Error(status));
      future_->setErrorIfNeeded(error);
      finish(error);
    }
  }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// `work` as c10d sees it; `then` runs first, when the bytes are there.
WorkPtr wrap(const Group& group, OpType op, Tensors outputs, hanji::comm::Work work,
             const std::function<void()>& then = {}) {
  auto wrapped = c10::make_intrusive<GroupWork>(group.rank(), op, std::move(outputs));
  work.then([wrapped, then](const Status& status) {
    if (status.ok() && then) {
      const at::NoGradGuard no_grad;
      then();
    }
    wrapped->complete(status);
  });
  return wrapped;
}

class GroupBackend final : public ::c10d::Backend {
 public:
  explicit GroupBackend(Group group)
      : ::c10d::Backend(group.rank(), group.size()),
        group_(std::move(group)),
        options_(c10::make_intrusive<Options>("hanji")) {
    init();
  }

  const std::string getBackendName() const override { return "hanji"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}  // ours counts from the group's birth
  uint64_t getSequenceNumberForGroup() override { return group_.sequence(); }

  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override {
    at::Tensor tensor = only(tensors);
    auto work = all_reduce(tensor, group_, {.op = to_reduce_op(options.reduceOp), .label = "c10d"});
    return wrap(group_, OpType::ALLREDUCE, tensors, std::move(work));
  }

  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const ::c10d::AllreduceCoalescedOptions& options) override {
    hanji::comm::Work last;  // calls complete in order, so the last one speaks for all
    for (at::Tensor& tensor : tensors) {
      last = all_reduce(tensor, group_, {.op = to_reduce_op(options.reduceOp), .label = "c10d"});
    }
    return wrap(group_, OpType::ALLREDUCE_COALESCED, tensors, last);
  }

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override {
    at::Tensor tensor = only(tensors);
    auto work =
        comm::broadcast(tensor, static_cast<int>(options.rootRank), group_, {.label = "c10d"});
    return wrap(group_, OpType::BROADCAST, tensors, std::move(work));
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& /*options*/) override {
    const at::Tensor input = only(inputs).detach().contiguous();
    if (outputs.size() != 1 || static_cast<int>(outputs[0].size()) != size_) {
      throw Error(base::invalid_argument(
          fmt::format("allgather: one list of {} output tensors is needed", size_)));
    }
    at::Tensor flat = at::empty({size_ * input.numel()}, input.options());
    auto work = all_gather(flat, input, group_, {.label = "c10d"});
    const auto spread = [flat, input, list = outputs[0]] {
      for (size_t rank = 0; rank < list.size(); ++rank) {
        const auto begin = static_cast<int64_t>(rank) * input.numel();
        at::Tensor(list[rank]).copy_(flat.narrow(0, begin, input.numel()).view(input.sizes()));
      }
    };
    return wrap(group_, OpType::ALLGATHER, outputs[0], std::move(work), spread);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& /*options*/) override {
    auto work = all_gather(output, input, group_, {.label = "c10d"});
    return wrap(group_, OpType::_ALLGATHER_BASE, {output}, std::move(work));
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& /*options*/) override {
    hanji::comm::Work last;
    for (size_t i = 0; i < inputs.size(); ++i) {
      last = all_gather(outputs.at(i), inputs[i], group_, {.label = "c10d"});
    }
    return wrap(group_, OpType::COALESCED, outputs, last);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& options) override {
    at::Tensor output = only(outputs);
    if (inputs.size() != 1) {
      throw Error(base::invalid_argument("reduce_scatter: one list of input tensors is needed"));
    }
    Tensors flat;
    for (const at::Tensor& input : inputs[0]) flat.push_back(input.detach().reshape(-1));
    auto work = comm::reduce_scatter(output, at::cat(flat), group_,
                                     {.op = to_reduce_op(options.reduceOp), .label = "c10d"});
    return wrap(group_, OpType::REDUCE_SCATTER, outputs, std::move(work));
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override {
    auto work = comm::reduce_scatter(output, input, group_,
                                     {.op = to_reduce_op(options.reduceOp), .label = "c10d"});
    return wrap(group_, OpType::_REDUCE_SCATTER_BASE, {output}, std::move(work));
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) override {
    hanji::comm::Work last;
    for (size_t i = 0; i < inputs.size(); ++i) {
      last = comm::reduce_scatter(outputs.at(i), inputs[i], group_,
                                  {.op = to_reduce_op(options.reduceOp), .label = "c10d"});
    }
    return wrap(group_, OpType::COALESCED, outputs, last);
  }

  WorkPtr barrier(const ::c10d::BarrierOptions& /*options*/) override {
    Request request{.routine = schedule::Routine::kBarrier,
                    .label = "c10d",
                    .call_site = std::source_location::current()};
    return wrap(group_, OpType::BARRIER, {}, submit(std::move(request), group_));
  }

 private:
  Group group_;
  c10::intrusive_ptr<Options> options_;
};

}  // namespace

c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& group) {
  if (group.options().progress != Progress::kThread) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: c10d's futures complete unwaited, so the group must move its bytes "
                    "itself; make it with Progress::kThread",
                    group.name())));
  }
  return c10::make_intrusive<GroupBackend>(group);
}

}  // namespace hanji::comm::c10d
