#include "hanji/train/observe_rank.h"

#include <fmt/format.h>

#include "hanji/data/loader.h"
#include "hanji/layers/model.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

/// Tells an observer every gradient that autograd hands to a parameter, before any reducer or sum
/// sees it: of a model that ranks cut, this rank's parts. The hooks end with the model.
class GradientWatch {
 public:
  GradientWatch(const Job& job, const plan::Plan& plan, Observer& observer) {
    const layout::Range samples = plan::share_of(plan, job.group.rank()).samples;
    for (const layout::Range positions : data::cut(samples, plan.micro_batch)) {
      grains_.push_back(positions.begin / plan.config.train.grain);
    }
    const auto& parameters = job.strategy->parameters();
    counts_.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].tensor.register_hook(
          [this, i, &observer, part = job.model->cut().index](const at::Tensor& gradient) {
            observer.backward({grains_[counts_[i]++ % grains_.size()], part}, i, gradient);
          });
    }
  }
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  std::vector<int64_t> grains_;  ///< By backward of a step.
  std::vector<size_t> counts_;   ///< Of gradients, by parameter.
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
  const GradientWatch watch(job, plan, observer);
  base::throw_if_error(observer.step(0, view_of(job)));
  LoopInputs inputs{.plan = plan,
                    .dataset = dataset,
                    .memory = memory,
                    .stop = stop,
                    .save = [](int64_t, double) {},
                    .before_update = [&] { observer.summed(view_with_gradients(job).gradients); }};
  inputs.step = [&](Job& in, const plan::TrainConfig& train, const StepInputs& step) {
    const StepResult result = parts.step(in, train, step);
    base::throw_if_error(observer.step(step.number + 1,
                                       result.updated ? view_of(in) : view_with_gradients(in),
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
  return observer.finish(view_of(job));
}

}  // namespace hanji::train
