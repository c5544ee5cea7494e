#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

#include "hanji/base/status.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/heap.h"
#include "hanji/parallel/ddp/internal/reducer.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;

/// Runs an earlier hook of the same parameter first; torch keeps only one per parameter.
struct GradientHook : autograd::PostAccumulateGradHook {
  std::function<void()> on_gradient;
  std::unique_ptr<autograd::PostAccumulateGradHook> earlier;

  void operator()(const autograd::Variable& parameter) override {
    if (earlier) (*earlier)(parameter);
    on_gradient();
  }
};

schedule::ReduceOp reduce_op(Average average) {
  return average == Average::kMean ? schedule::ReduceOp::kAvg : schedule::ReduceOp::kSum;
}

}  // namespace

Reducer::Reducer(std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers,
                 const comm::Group& group, const DataParallelOptions& options)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      group_(group),
      options_(options) {
  std::vector<int64_t> sizes;
  for (const auto& entry : parameters_) sizes.push_back(entry.tensor.numel());
  const auto element_bytes = static_cast<int64_t>(parameters_[0].tensor.element_size());
  plan_ =
      layout::bucket_plan(sizes, element_bytes, options.bucket_bytes, options.first_bucket_bytes);
  place_slots();
  install_hooks();
}

Reducer::~Reducer() {
  for (const auto& entry : parameters_) {
    auto& hook = autograd::impl::post_acc_grad_hooks(entry.tensor);
    if (auto* ours = dynamic_cast<GradientHook*>(hook.get())) {
      autograd::impl::set_post_acc_grad_hooks(entry.tensor, std::move(ours->earlier));
    }
  }
}

/// A slot shares the bucket's memory without being a view to autograd: torch's optimizers detach
/// gradients in place, which views forbid.
void Reducer::place_slots() {
  const at::Tensor& first = parameters_[0].tensor;
  flat_ = group_.heap().zeros({plan_.flat.count}, first.scalar_type(), "gradients");
  slots_.resize(parameters_.size());
  buckets_.resize(plan_.buckets.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const layout::Bucket& bucket = plan_.buckets[b];
    buckets_[b].flat = flat_.slice(0, bucket.begin, bucket.end);
    for (const int index : bucket.parameters) {
      const at::Tensor& parameter = parameters_[index].tensor;
      const int64_t begin = plan_.flat.offsets[index];
      slots_[index].gradient =
          at::empty({0}, flat_.options())
              .set_(flat_.storage(), flat_.storage_offset() + begin, parameter.sizes(), {});
      slots_[index].bucket = b;
    }
  }
}

void Reducer::install_hooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    auto hook = std::make_unique<GradientHook>();
    hook->on_gradient = [this, i] { on_gradient(i); };
    hook->earlier = std::move(autograd::impl::post_acc_grad_hooks(parameter));
    autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
  }
}

void Reducer::on_gradient(size_t index) {
  adopt(index);
  if (accumulating_) return;
  arm_end_of_backward();
  mark_ready(index);
  launch_ready_buckets();
  group_.advance();
}

void Reducer::arm_end_of_backward() {
  const int task = autograd::get_current_graph_task_id();
  if (task == armed_graph_task_) return;
  if (armed_graph_task_ != -1) {
    throw Error(base::invalid_argument(
        "an earlier backward() of this module ended by an exception, so its gradients were sent "
        "only in part; build data_parallel() anew on every rank"));
  }
  armed_graph_task_ = task;
  autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
}

/// Makes `.grad` the slot in the bucket, whatever backward left there.
void Reducer::adopt(size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor& slot = slots_[index].gradient;
  if (gradient.layout() == c10::kStrided && gradient.data_ptr() == slot.data_ptr() &&
      gradient.strides() == slot.strides()) {
    return;
  }
  slot.copy_(gradient.layout() == c10::kStrided ? gradient : gradient.to_dense());
  gradient = slot;
}

void Reducer::mark_ready(size_t index) {
  if (slots_[index].ready) {
    throw Error(base::invalid_argument(
        "parameter " + parameters_[index].name +
        " got its gradient twice in one backward(); wrap all but the last use in accumulate()"));
  }
  slots_[index].ready = true;
  ++buckets_[slots_[index].bucket].num_ready;
}

void Reducer::launch_ready_buckets() {
  while (num_launched_ < buckets_.size()) {
    Bucket& bucket = buckets_[num_launched_];
    if (bucket.num_ready < plan_.buckets[num_launched_].parameters.size()) return;
    if (options_.average == Average::kWeighted) bucket.flat.mul_(weight_);
    bucket.work.emplace(comm::all_reduce(
        bucket.flat, group_,
        {.op = reduce_op(options_.average), .tag = num_launched_, .label = "gradients"}));
    ++num_launched_;
  }
}

void Reducer::finish() {
  const at::NoGradGuard no_grad;
  fill_missing();
  launch_ready_buckets();
  const at::Tensor used = used_anywhere();
  at::Tensor total_weight;
  if (options_.average == Average::kWeighted) {
    total_weight = at::full({1}, weight_, at::kDouble);
    comm::all_reduce(total_weight, group_, {.label = "weights"}).wait();
  }
  for (Bucket& bucket : buckets_) {
    bucket.work->wait();
    if (total_weight.defined()) bucket.flat.div_(total_weight.item<double>());
  }
  hand_out(used);
  reset();
  ++num_backwards_;
  if (options_.check_every > 0 && num_backwards_ % options_.check_every == 0) check_parameters();
}

void Reducer::fill_missing() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].ready) continue;
    if (parameters_[i].tensor.grad().defined()) {
      adopt(i);
    } else {
      slots_[i].gradient.zero_();
    }
    mark_ready(i);
  }
}

/// One byte per parameter: 1 where any rank has a gradient.
at::Tensor Reducer::used_anywhere() {
  at::Tensor used = at::zeros({static_cast<int64_t>(slots_.size())}, at::kByte);
  auto* bytes = used.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < slots_.size(); ++i) bytes[i] = parameters_[i].tensor.grad().defined();
  comm::all_reduce(used, group_, {.op = schedule::ReduceOp::kMax, .label = "used parameters"})
      .wait();
  return used;
}

void Reducer::hand_out(const at::Tensor& used) {
  const auto* bytes = used.const_data_ptr<uint8_t>();
  for (size_t i = 0; i < slots_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    gradient = bytes[i] ? slots_[i].gradient : at::Tensor();
  }
}

void Reducer::reset() {
  for (Slot& slot : slots_) slot.ready = false;
  for (Bucket& bucket : buckets_) {
    bucket.num_ready = 0;
    bucket.work.reset();
  }
  num_launched_ = 0;
  armed_graph_task_ = -1;
}

void Reducer::set_weight(double weight) {
  if (options_.average != Average::kWeighted || !(weight >= 0)) {
    throw Error(
        base::invalid_argument("set_weight(" + std::to_string(weight) +
                               ") needs Average::kWeighted and a weight that is not negative"));
  }
  weight_ = weight;
}

std::vector<at::Tensor> Reducer::gradient_slots() const {
  std::vector<at::Tensor> slots;
  for (const Slot& slot : slots_) slots.push_back(slot.gradient);
  return slots;
}

}  // namespace hanji::parallel
