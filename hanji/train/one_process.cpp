#include "hanji/train/one_process.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hanji/compute/apply.h"
#include "hanji/data/source.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/verifiable.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/train/initial_file.h"
#include "hanji/train/learning_rate.h"
#include "hanji/train/make_model.h"
#include "hanji/train/optimizer.h"
#include "hanji/train/skip_reason.h"

namespace hanji::train {
namespace {

using layout::Range;

std::vector<std::vector<Range>> leaves_of(const plan::Plan& plan) {
  base::throw_if_error(plan::check_verifiable(plan));
  const plan::TrainConfig& train = plan.config.train;
  std::vector<std::vector<Range>> leaves;
  if (train.bits == plan::Bits::kStable) {
    for (const Range grain : data::cut({0, train.global_batch}, train.grain)) {
      leaves.push_back({grain});
    }
  } else {
    for (const plan::DataShare& share : plan.shares) {
      leaves.push_back(data::cut(share.samples, plan.micro_batch));
    }
  }
  return leaves;
}

/// One order for every sum: `right` is added to `left`.
void add_to(std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  for (size_t i = 0; i < left.size(); ++i) left[i].add_(right[i]);
}

}  // namespace

OneProcess::OneProcess(const plan::Plan& plan, const Dataset& dataset, const MakeModel& make)
    : plan_(plan),
      dataset_(dataset),
      loader_(make_loader(plan, dataset, {0, plan.config.train.global_batch})),
      leaves_(leaves_of(plan)),
      model_(make_model(plan, make)),
      scopes_(training_scopes(plan.config, *model_)) {
  base::throw_if_error(load_initial_file(plan.config.model, *model_));
  if (plan.config.train.bits == plan::Bits::kStable) {
    uses_ = parallel::tied_uses(*model_, {{0, model_->num_layers()}});
    scopes_.push_back(parallel::use_scope(uses_));
  }
  const auto learning = parallel::learning_parameters(*model_);
  const layout::PlacementTable placements = model_->cut().placements;
  const bool is_cut = plan.mesh.degree("tp") > 1;
  for (const auto& [name, tensor] : learning) {
    parameters_.push_back(tensor);
    names_.push_back({name, model_->layer_of(tensor)});
    if (is_cut) placements_.push_back(layout::placement_of(placements, name).or_throw());
  }
  for (const parallel::TiedUse& use : uses_) {
    parameters_.push_back(use.leaf);
    names_.push_back({use.parameter.name, use.layer});
    if (is_cut) {
      placements_.push_back(layout::placement_of(placements, use.parameter.name).or_throw());
    }
  }
  flat_ = parallel::flat_layout_of(learning);
  const auto options = parameters_[0].detach().options();
  gradients_ = at::zeros({flat_.count}, options);
  if (const auto blocks = static_cast<int>(plan.config.train.cuts.features); blocks > 1) {
    block_norm_.emplace(learning, model_->cut(), parallel::tensor::Axis().in_blocks(blocks));
  }
  optimizer_ = optimizer_of(plan)(
      parallel::whole_part(learning, flat_, at::zeros({flat_.count}, options), gradients_,
                           parallel::decay_matrices(plan.config.train.weight_decay)),
      {});
}

void OneProcess::forward_backward(Range positions, Sum& leaf, Observer& observer) {
  const plan::TrainConfig& train = plan_.config.train;
  data::read_batch(*dataset_.samples, loader_, step_, positions, batch_);
  batch_.counters = {.seed = static_cast<uint64_t>(train.seed), .step = step_};
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  const layers::LossSum loss = model_->loss_sum(batch_, scopes_);
  loss.sum.backward();
  leaf.loss += loss.sum.item<double>();
  leaf.num_targets += static_cast<double>(loss.count);
  leaf.statistics.add(model_->statistics({0, model_->num_layers()}), positions.size());
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    observe_gradient(positions.begin / train.grain, i, observer);
    gradients.push_back(std::exchange(parameters_[i].mutable_grad(), {}));
  }
  if (leaf.gradients.empty()) {
    leaf.gradients = std::move(gradients);
  } else {
    add_to(leaf.gradients, gradients);
  }
}

/// The rank of the pipeline whose stage has the layer.
int OneProcess::stage_rank_of(const GradientName& gradient) const {
  if (plan_.mesh.degree("pp") == 1) return 0;
  const std::vector<Range> stages = plan::stages_of(plan_);
  const auto found = std::ranges::find_if(
      stages, [&](const Range& layers) { return gradient.layer < layers.end; });
  return plan::ranks_of_stages(plan_)[found - stages.begin()];
}

void OneProcess::observe_gradient(int64_t grain, size_t i, Observer& observer) const {
  const at::Tensor& gradient = parameters_[i].grad();
  const int stage_rank = stage_rank_of(names_[i]);
  if (placements_.empty()) return observer.backward({grain, stage_rank}, names_[i], gradient);
  const int degree = plan_.mesh.degree("tp");
  for (int part = 0; part < degree; ++part) {
    observer.backward({grain, stage_rank * degree + part}, names_[i],
                      parallel::tensor::part_of(gradient, placements_[i], part, degree));
  }
}

OneProcess::Sum OneProcess::leaf(const std::vector<Range>& micro_batches, Observer& observer) {
  Sum sum;
  for (const Range positions : micro_batches) forward_backward(positions, sum, observer);
  return sum;
}

OneProcess::Sum OneProcess::sum(Range leaves, Observer& observer) {
  if (leaves.size() == 1) return leaf(leaves_[leaves.begin], observer);
  const int64_t middle = leaves.begin + schedule::split_point(leaves.size());
  Sum left = sum({leaves.begin, middle}, observer);
  const Sum right = sum({middle, leaves.end}, observer);
  add_to(left.gradients, right.gradients);
  left.loss += right.loss;
  left.statistics.add(right.statistics);
  left.num_targets += right.num_targets;
  return left;
}

/// To the sums of the first uses, in order of layers.
void OneProcess::add_uses(const std::vector<at::Tensor>& sums) {
  const auto learning = parallel::learning_parameters(*model_);
  const std::vector<at::Tensor> first = gradients();
  for (size_t i = 0; i < uses_.size(); ++i) {
    const auto found =
        std::ranges::find(learning, uses_[i].parameter.name, &parallel::NamedParameter::name);
    first[found - learning.begin()].add_(sums[learning.size() + i]);
  }
}

std::vector<at::Tensor> OneProcess::gradients() const {
  return by_parameter(gradients_, flat_, parallel::learning_parameters(*model_));
}

double OneProcess::gradient_norm() const {
  if (!block_norm_) return parallel::grad_norm(gradients_, flat_);
  return block_norm_->of(parallel::learning_parameters(*model_), gradients());
}

StepTotals OneProcess::step(Observer& observer) {
  const plan::TrainConfig& train = plan_.config.train;
  const Sum all = sum({0, std::ssize(leaves_)}, observer);
  for (size_t i = 0; i < flat_.sizes.size(); ++i) {
    gradients_.slice(0, flat_.offsets[i], flat_.offsets[i] + flat_.sizes[i])
        .copy_(all.gradients[i].view({-1}));
  }
  add_uses(all.gradients);
  const StepTotals totals{.loss = all.loss / all.num_targets,
                          .gradient_norm = gradient_norm() / all.num_targets};
  const bool finite = std::isfinite(totals.loss) && std::isfinite(totals.gradient_norm);
  if (!finite && train.nan == plan::NanPolicy::kStop) {
    throw Error(skip_reason({.steps_done = step_ + 1,
                             .loss = totals.loss,
                             .gradient_norm = totals.gradient_norm,
                             .num_targets = static_cast<int64_t>(all.num_targets)},
                            train)
                    .at("the one process"));
  }
  if (finite) {
    observer.summed(view().gradients);
    optimizer_->step(learning_rate(train, step_),
                     all.num_targets * parallel::clip_divisor(totals.gradient_norm, train.clip));
    all.statistics.update(*model_, train.global_batch);
  }
  ++step_;
  return totals;
}

JobView OneProcess::view() const {
  return view_of(*model_, {.layout = flat_,
                           .parameters = parallel::learning_parameters(*model_),
                           .gradients = gradients(),
                           .moments = moments_of(*optimizer_),
                           .num_updates = optimizer_->num_updates()});
}

report::ObservedRun observe(OneProcess& job, int64_t steps, const ObserveOptions& options) {
  Observer observer(options);
  base::throw_if_error(observer.step(0, job.view()));
  for (int64_t done = 1; done <= steps; ++done) {
    const StepTotals totals = job.step(observer);
    base::throw_if_error(observer.step(done, job.view(), totals));
  }
  return observer.finish(job.view());
}

report::ObservedRun observe_one_process(const plan::Plan& plan, const Dataset& dataset,
                                        const ObserveOptions& options, const MakeModel& make) {
  compute::apply(plan.kernels, plan.threads);
  OneProcess job(plan, dataset, make);
  return observe(job, plan.config.train.steps, options);
}

}  // namespace hanji::train
