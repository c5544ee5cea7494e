#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/parallel/ddp/internal/reducer.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;

}  // namespace

Reducer::Reducer(std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers,
                 const comm::Group& group, const DataParallelOptions& options)
    : parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      group_(group),
      options_(options) {
  std::vector<int64_t> sizes;
  for (const auto& entry : parameters_) sizes.push_back(entry.tensor.numel());
  const auto element_bytes = static_cast<int64_t>(
      c10::elementSize(options.gradient_dtype.value_or(parameters_[0].tensor.scalar_type())));
  plan_ = layout::bucket_plan(sizes, element_bytes, options.bucket_bytes,
                              std::min(options.first_bucket_bytes, options.bucket_bytes));
  if (options_.num_grains > 0) fold_.emplace(options_.num_grains, options_.owners, group_.rank());
  place_slots();
  install_hooks();
}

Reducer::~Reducer() {
  for (const auto& entry : parameters_) remove_gradient_hook(entry.tensor);
}

void Reducer::place_slots() {
  const int64_t num_rows = fold_ ? fold_->num_buffers() : 1;
  const at::Tensor& first = parameters_[0].tensor;
  const auto dtype = options_.gradient_dtype.value_or(first.scalar_type());
  converts_ = dtype != first.scalar_type();
  sums_ = comm::zeros_on(first.device(), {num_rows, plan_.flat.count}, dtype, group_, "gradients");
  flat_ = sums_[0];
  for (int64_t row = 0; row < num_rows; ++row) rows_.push_back(slots_of(sums_[row]));
  slots_.resize(parameters_.size());
  buckets_.resize(plan_.buckets.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const layout::Bucket& bucket = plan_.buckets[b];
    buckets_[b].flat = flat_.slice(0, bucket.begin, bucket.end);
    buckets_[b].parts = sums_.slice(1, bucket.begin, bucket.end);
    buckets_[b].view = {b, buckets_[b].flat, {}, reduce_op(options_.average)};
    for (const int index : bucket.parameters) {
      slots_[index].bucket = b;
      buckets_[b].view.gradients.push_back(rows_[0][index]);
    }
    if (!fold_) continue;
    buckets_[b].steps = std::make_shared<const schedule::StepList>(
        schedule::tree_all_reduce(fold_->tree(), bucket.end - bucket.begin));
  }
}

/// A slot shares the row's memory without being a view to autograd: torch's optimizers detach
/// gradients in place, which views forbid.
std::vector<at::Tensor> Reducer::slots_of(const at::Tensor& row) const {
  std::vector<at::Tensor> slots;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    slots.push_back(at::empty({0}, row.options())
                        .set_(row.storage(), row.storage_offset() + plan_.flat.offsets[i],
                              parameters_[i].tensor.sizes(), {}));
  }
  return slots;
}

void Reducer::install_hooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    add_gradient_hook(parameters_[i].tensor, "data_parallel", [this, i] { on_gradient(i); });
  }
}

void Reducer::on_gradient(size_t index) {
  if (fold_ && !fold_->is_open()) {
    throw Error(base::invalid_argument(
        "a backward() outside any grain reached parameter " + parameters_[index].name +
        "; call replicas.grain(index) before each backward(), or take num_grains out of the "
        "options of data_parallel()"));
  }
  adopt(index);
  slots_[index].used = true;
  if (accumulating_) return;
  arm_end_of_backward();
  mark_ready(index);
  if (fold_) fold_in(index);
  launch_ready_buckets();
  group_.advance();
}

void Reducer::begin_grain(int64_t index) {
  if (!fold_) {
    throw Error(base::invalid_argument("grain(" + std::to_string(index) +
                                       ") needs num_grains in the options of data_parallel()"));
  }
  fold_->begin(index);
  row_ = fold_->step().buffer;
  for (const auto& entry : parameters_) entry.tensor.mutable_grad().reset();
}

/// Row by row, one parameter: element-wise sums do not care which parameter comes first.
void Reducer::fold_in(size_t index) {
  const at::NoGradGuard no_grad;
  parameters_[index].tensor.mutable_grad().reset();
  for (int i = 0; i < fold_->step().num_combines; ++i) {
    rows_[row_ - i - 1][index].add_(rows_[row_ - i][index]);
  }
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
  if (converts_) return widen(index);
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor& slot = rows_[row_][index];
  if (gradient.layout() == c10::kStrided && gradient.data_ptr() == slot.data_ptr() &&
      gradient.strides() == slot.strides()) {
    return;
  }
  slot.copy_(gradient.layout() == c10::kStrided ? gradient : gradient.to_dense());
  gradient = slot;
}

/// Adds what backward left in `.grad` to the slot of another dtype, and empties `.grad`.
void Reducer::widen(size_t index) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  const at::Tensor dense = gradient.layout() == c10::kStrided ? gradient : gradient.to_dense();
  const at::Tensor& slot = rows_[row_][index];
  !fold_&& slots_[index].used ? slot.add_(dense) : slot.copy_(dense);
  gradient.reset();
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
  if (fold_ && !fold_->is_last()) return;
  while (num_launched_ < buckets_.size()) {
    Bucket& bucket = buckets_[num_launched_];
    if (bucket.num_ready < plan_.buckets[num_launched_].parameters.size()) return;
    bucket.work.emplace(launch(num_launched_));
    ++num_launched_;
  }
}

comm::Work Reducer::launch(size_t index) {
  Bucket& bucket = buckets_[index];
  if (fold_) {
    return comm::tree_all_reduce(bucket.parts, bucket.flat, bucket.steps, group_,
                                 {.tag = index, .label = "gradients"});
  }
  if (options_.average == Average::kWeighted) bucket.flat.mul_(weight_);
  if (options_.hook) return options_.hook.begin(bucket.view, group_);
  return comm::all_reduce(bucket.flat, group_,
                          {.op = reduce_op(options_.average), .tag = index, .label = "gradients"});
}

/// The end of a backward: of all gradients, or in stable of those of one grain.
void Reducer::finish() {
  const at::NoGradGuard no_grad;
  if (fold_ && !fold_->is_open() && fold_->grains().size() > 0) {
    throw Error(base::invalid_argument("finish() outside any grain; call replicas.grain(index)"));
  }
  fill_missing();
  const bool last = !fold_ || fold_->is_last();
  if (last) reduce_all();
  reset();
  if (fold_) fold_->end();
  if (!last) return;
  for (Slot& slot : slots_) slot.used = false;
  row_ = 0;
  ++num_backwards_;
  if (options_.check_every > 0 && num_backwards_ % options_.check_every == 0) check_parameters();
}

void Reducer::reduce_all() {
  if (static_used_.defined()) check_static_order();
  launch_ready_buckets();
  const at::Tensor used = static_used_.defined() ? static_used_ : used_anywhere();
  for (Bucket& bucket : buckets_) {
    bucket.work->wait();
    if (options_.hook && options_.hook.finish) options_.hook.finish(bucket.view, group_);
  }
  scale();
  hand_out(used);
}

/// What the sums over ranks have not divided by yet.
void Reducer::scale() {
  if (fold_ && options_.average == Average::kMean) {
    flat_.div_(static_cast<double>(options_.num_grains));
  }
  if (joined_weight_ > 0) {
    flat_.div_(joined_weight_);
    joined_weight_ = 0;
    return;
  }
  if (options_.average != Average::kWeighted) return;
  at::Tensor total_weight = at::full({1}, weight_, at::kDouble);
  comm::all_reduce_on_host(total_weight, group_, {.label = "weights"});
  flat_.div_(total_weight.item<double>());
}

void Reducer::fill_missing() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].ready) continue;
    const bool accumulated = !fold_ && converts_ && slots_[i].used;
    if (!fold_ && parameters_[i].tensor.grad().defined()) {
      adopt(i);
    } else if (!accumulated) {
      rows_[row_][i].zero_();
    }
    mark_ready(i);
    if (fold_ && fold_->is_open()) fold_in(i);
  }
}

/// One byte per parameter: 1 where any rank has a gradient.
at::Tensor Reducer::used_anywhere() {
  at::Tensor used = at::zeros({static_cast<int64_t>(slots_.size())}, at::kByte);
  auto* bytes = used.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < slots_.size(); ++i) {
    bytes[i] = fold_ || converts_ ? slots_[i].used : parameters_[i].tensor.grad().defined();
  }
  comm::all_reduce_on_host(used, group_,
                           {.op = schedule::ReduceOp::kMax, .label = "used parameters"});
  if (options_.static_order) {
    static_used_ = used;
    for (Slot& slot : slots_) slot.used_first = slot.used;
  }
  return used;
}

void Reducer::check_static_order() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].used == slots_[i].used_first || without_data_) continue;
    throw Error(base::invalid_argument(
        "static_order: parameter " + parameters_[i].name +
        (slots_[i].used ? " has a gradient now and had none in the first step"
                        : " has no gradient now and had one in the first step") +
        " of rank " + std::to_string(group_.rank()) +
        "; take static_order out of the options of data_parallel()"));
  }
}

void Reducer::hand_out(const at::Tensor& used) {
  if (converts_) return;
  const auto* bytes = used.const_data_ptr<uint8_t>();
  for (size_t i = 0; i < slots_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    gradient = bytes[i] ? rows_[0][i] : at::Tensor();
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

bool Reducer::join(double weight) {
  if (fold_ || options_.average == Average::kMean) {
    throw Error(base::unsupported(
        fold_ ? "join() with stable bits: grains say who has what; give the ranks uneven owners"
              : "join() with Average::kMean, which counts a rank with little data as much as one "
                "with a lot; use kWeighted (losses are means) or kSum (losses are sums)"));
  }
  if (!(weight >= 0)) {
    throw Error(base::invalid_argument("join(" + std::to_string(weight) +
                                       "): the weight is not negative, 0 without data"));
  }
  at::Tensor total = at::full({1}, weight, at::kDouble);
  comm::all_reduce_on_host(total, group_, {.label = "join"});
  joined_weight_ = total.item<double>();
  if (joined_weight_ == 0) return false;
  weight_ = options_.average == Average::kWeighted ? weight : 1;
  if (weight > 0) return true;
  without_data_ = true;
  for (const auto& entry : parameters_) entry.tensor.mutable_grad().reset();
  finish();
  without_data_ = false;
  return true;
}

void Reducer::set_accumulating(bool accumulating) {
  if (fold_ && accumulating) {
    throw Error(base::invalid_argument(
        "accumulate() has no meaning with stable bits; call replicas.grain(index) instead"));
  }
  accumulating_ = accumulating;
}

const GrainFold& Reducer::fold() const {
  if (fold_) return *fold_;
  throw Error(base::invalid_argument(
      "there are no grains here: num_grains is 0 in the options of data_parallel()"));
}

}  // namespace hanji::parallel
