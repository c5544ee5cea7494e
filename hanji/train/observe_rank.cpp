#include "hanji/train/observe_rank.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hanji/data/loader.h"
#include "hanji/layers/model.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

/// Where a gradient is added to a parameter. Hooks of the tensor itself would also run in the first part of a
/// split backward, which adds nothing.
struct AtAccumulation : torch::autograd::FunctionPreHook {
  std::function<void(const at::Tensor&)> on_gradient;

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    if (grads[0].defined()) on_gradient(grads[0]);
    return grads;
  }
};

/// Tells an observer every gradient that autograd hands to a use of a parameter, before any reducer or
/// sum sees it: of a model that ranks cut, this rank's parts. The hooks end with the model.
class GradientWatch {
 public:
  GradientWatch(const Job& job, const plan::Plan& plan, Observer& observer) {
    for (const parallel::NamedParameter& one : job.strategy->parameters()) {
      watch(job, plan, observer, {one.name, first_layer(job, one.tensor)}, one.tensor);
    }
    for (const parallel::TiedUse& use : job.uses) {
      watch(job, plan, observer, {use.parameter.name, use.layer}, use.leaf);
    }
  }
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  /// Of this rank's layers.
  static int64_t first_layer(const Job& job, const at::Tensor& parameter) {
    const parallel::Stages& stages = job.pipeline.stages();
    for (int stage = 0; stage <= stages.last(); ++stage) {
      for (int64_t i = stages.layers[stage].begin;
           job.pipeline.has(stage) && i < stages.layers[stage].end; ++i) {
        const auto read = job.model->layer_parameters(i);
        if (std::ranges::any_of(read, [&](const auto& one) { return one.is_same(parameter); })) {
          return i;
        }
      }
    }
    return 0;
  }

  /// By backward of a step that reaches a layer.
  static std::vector<int64_t> grains_of(const Job& job, const plan::Plan& plan, int64_t layer) {
    const int rank = job.group.rank();
    if (job.stages) return plan::grains_in_order(plan, rank, job.pipeline.stages().of_layer(layer));
    std::vector<int64_t> grains;
    for (const auto positions : data::cut(plan::share_of(plan, rank).samples, plan.micro_batch)) {
      grains.push_back(positions.begin / plan.config.train.grain);
    }
    return grains;
  }

  void watch(const Job& job, const plan::Plan& plan, Observer& observer, const GradientName& name,
             const at::Tensor& leaf) {
    const layout::Cut cut = job.model->cut();
    const int part = (job.stages ? job.stages->rank() * cut.degree : 0) + cut.index;
    auto hook = std::make_unique<AtAccumulation>();
    hook->on_gradient = [&observer, name, part, grains = grains_of(job, plan, name.layer),
                         count = size_t{0}](const at::Tensor& gradient) mutable {
      observer.backward({grains[count++ % grains.size()], part}, name, gradient);
    };
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(leaf));
    accumulators_.back()->add_pre_hook(std::move(hook));
  }

  using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));

  /// Tensors do not keep theirs, and the hooks with them.
  std::vector<NodePtr> accumulators_;
};

}  // namespace

report::ObservedRun observe_rank(const plan::Plan& plan, const Dataset& dataset,
                                 const comm::Group& group, const ObserveOptions& options,
                                 const ObservedParts& parts) {
  PrivateMemory memory;
  StopSignal stop = StopSignal::create().or_throw();
  Job job = parts.assemble(plan, group);
  ObserveOptions of_whole_tensors = options;
  of_whole_tensors.whole_of = [&job](const StateTensor& one) { return whole_of(one, job); };
  Observer observer(of_whole_tensors);
  std::optional<GradientWatch> watch;
  if (!options.reference) watch.emplace(job, plan, observer);  // else sums alone are compared
  base::throw_if_error(observer.step(0, view_of_stages(job)));
  LoopInputs inputs{.plan = plan,
                    .dataset = dataset,
                    .memory = memory,
                    .stop = stop,
                    .save = [](int64_t, double) {},
                    .before_update = [&] { observer.summed(view_with_gradients(job).gradients); }};
  inputs.step = [&](Job& in, const plan::TrainConfig& train, const StepInputs& step) {
    const StepResult result = parts.step(in, train, step);
    base::throw_if_error(observer.step(
        step.number + 1, result.updated ? view_of_stages(in) : view_with_gradients(in),
        {result.loss, result.gradient_norm}));
    return result;
  };
  const LoopOutcome outcome = run_loop(job, inputs);
  if (outcome.stop_signal != 0) {
    throw Error(base::invalid_argument(
        fmt::format("stopped by signal {} after step {}; a job that was not run to its end is not "
                    "verified",
                    outcome.stop_signal, outcome.steps_done)));
  }
  return observer.finish(view_of_stages(job));
}

}  // namespace hanji::train
