#include "hanji/parallel/ddp/internal/reducer.h"

#include <ATen/ops/full.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/new_tags.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {

Reducer::Reducer(ModuleTensors tensors, const comm::Group& group,
                 const DataParallelOptions& options, std::shared_ptr<ParameterWatch> watch)
    : parameters_(std::move(tensors.learning)),
      frozen_(std::move(tensors.frozen)),
      watch_(std::move(watch)),
      group_(group),
      options_(options),
      tags_(comm::new_tags(group)) {
  const at::ScalarType own = parameters_[0].tensor.scalar_type();
  const at::ScalarType dtype = options.gradient_dtype.value_or(own);
  converts_ = dtype != own;
  plan_ = layout::bucket_plan(flat_layout_of(parameters_).sizes,
                              static_cast<int64_t>(c10::elementSize(dtype)), options.bucket_bytes,
                              std::min(options.first_bucket_bytes, options.bucket_bytes));
  make_engine();
  place_buckets();
}

void Reducer::make_engine() {
  std::vector<GradientUnit> units;
  for (const layout::Bucket& bucket : plan_.buckets) {
    GradientUnit& unit = units.emplace_back();
    for (const int index : bucket.parameters) {
      unit.parameters.push_back(parameters_[index]);
      unit.offsets.push_back(plan_.flat.offsets[index] - bucket.begin);
    }
  }
  GradientOptions of{"data_parallel", {group_}};
  of.average = options_.average;
  of.num_grains = options_.num_grains;
  of.owners = options_.owners;
  of.owner = group_.rank();
  of.parts = options_.parts;
  of.remainder = converts_ ? Remainder::kNothing : Remainder::kSlot;
  of.static_order = options_.static_order;
  of.watch = watch_;
  Gradients::Events events;
  events.on_sums = [this] {
    const int64_t every = options_.check_every;
    if (++num_steps_; every > 0 && num_steps_ % every == 0) check_parameters();
  };
  gradients_ =
      std::make_unique<Gradients>(std::move(units), *this, std::move(of), std::move(events));
}

void Reducer::place_buckets() {
  const GrainFold* fold = gradients_->fold();
  const at::Tensor& first = parameters_[0].tensor;
  const at::Tensor rows =
      comm::zeros_on(first.device(), {gradients_->num_rows(), plan_.flat.count},
                     options_.gradient_dtype.value_or(first.scalar_type()), group_, "gradients");
  flat_ = rows[0];
  for (const layout::Bucket& of : plan_.buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.rows = rows.slice(1, of.begin, of.end);
    bucket.view = {
        buckets_.size() - 1, flat_.slice(0, of.begin, of.end), {}, reduce_op(options_.average)};
    bucket.view.tag = tags_ + bucket.view.index;
    for (const int index : of.parameters) {
      bucket.view.gradients.push_back(
          alias(flat_, plan_.flat.offsets[index], parameters_[index].tensor.sizes()));
    }
    if (fold != nullptr) {
      bucket.steps = std::make_shared<const schedule::StepList>(
          schedule::tree_all_reduce(fold->tree(), of.end - of.begin));
    } else if (!options_.hook) {
      bucket.all_reduce = comm::prepare(
          schedule::Routine::kAllReduce, flat_.scalar_type(), {of.end - of.begin}, group_,
          {.op = bucket.view.op, .tag = bucket.view.index, .label = "gradients"});
      bucket.all_reduce.bind(bucket.view.flat, bucket.view.flat);
    }
  }
}

void Reducer::begin(size_t index, Gradients& /*gradients*/) {
  Bucket& bucket = buckets_[index];
  if (bucket.steps) {
    bucket.work = comm::tree_all_reduce(bucket.rows, bucket.view.flat, bucket.steps, group_,
                                        {.tag = tags_ + index, .label = "gradients"});
  } else {
    bucket.work =
        options_.hook ? options_.hook.begin(bucket.view, group_) : bucket.all_reduce.start();
  }
}

void Reducer::end(size_t index, Gradients& gradients) {
  Bucket& bucket = buckets_[index];
  const auto used = gradients.used(index);
  bucket.work.wait();
  bucket.work = {};
  if (options_.hook && options_.hook.finish) options_.hook.finish(bucket.view, group_);
  if (const double by = gradients.divisor(); by != 1) bucket.view.flat.div_(by);
  if (converts_) return;
  const auto& indices = plan_.buckets[index].parameters;
  for (size_t i = 0; i < used.size(); ++i) {
    parameters_[indices[i]].tensor.mutable_grad() =
        used[i] != 0 ? bucket.view.gradients[i] : at::Tensor();
  }
}

std::vector<at::Tensor> Reducer::gradient_slots() const {
  std::vector<at::Tensor> slots(parameters_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const auto of_bucket = gradients_->slots(b);
    for (size_t i = 0; i < of_bucket.size(); ++i) {
      slots[plan_.buckets[b].parameters[i]] = of_bucket[i];
    }
  }
  return slots;
}

/// Those that the module has now.
void Reducer::broadcast_buffers() {
  if (watch_) broadcast_from_first(buffers_of(watch_->module()), group_);
}

/// A module that has changed on one rank only would be compared as it is not.
void Reducer::check_parameters() {
  gradients_->refuse_changes_together();
  check_same_values(with_buffers(parameters_, frozen_), group_);
}

bool Reducer::join(double weight) {
  const bool stable = gradients_->fold() != nullptr;
  if (stable || options_.average == Average::kMean) {
    throw Error(base::unsupported(
        stable ? "join() with stable bits: grains say who has what; give the ranks uneven owners"
               : "join() with Average::kMean, which counts a rank with little data as much as one "
                 "with a lot; use kWeighted (losses are means) or kSum (losses are sums)"));
  }
  if (!(weight >= 0)) {
    throw Error(base::invalid_argument("join(" + std::to_string(weight) +
                                       "): the weight is not negative, 0 without data"));
  }
  at::Tensor total = at::full({1}, weight, at::kDouble);
  under_rule(gradients_->order_rule(),
             [&] { comm::all_reduce_on_host(total, group_, {.tag = tags_, .label = "join"}); });
  if (total.item<double>() == 0) return false;
  gradients_->set_weight(weight, total.item<double>());
  if (weight > 0) return true;
  for (const auto& entry : parameters_) entry.tensor.mutable_grad().reset();
  gradients_->finish();
  return true;
}

}  // namespace hanji::parallel
