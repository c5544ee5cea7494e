#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "hanji/data/batch.h"
#include "hanji/layers/flow.h"
#include "hanji/layout/flat.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/tensor/block_norm.h"
#include "hanji/parallel/tied_uses.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/observe.h"
#include "hanji/train/statistics_sum.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// Runs the job of a plan in one process, without Group, reducer and heap (tools/floors.py checks the
/// includes). `hanji verify` compares the ranks with it.
///
/// Result  the bits that the plan's ranks must have. With stable bits: a backward per grain, summed by
///         the tree over grains. With train.bits = run: the micro-batches of a rank in sequence, then
///         the tree over ranks. Totals likewise, in double.
/// Cost    one rank's memory, and a buffer of gradients per level of the tree.
class OneProcess {
 public:
  /// `plan` and `dataset` outlive it.
  /// Errors  throws as plan::check_verifiable().
  OneProcess(const plan::Plan& plan, const Dataset& dataset, const MakeModel& make = {});

  /// Runs the next step of the job: 0, 1, ... `observer` receives the gradients and their sum.
  /// Errors  throws kInvalidArgument when loss or gradient is not finite and train.nan = stop.
  StepTotals step(Observer& observer);
  JobView view() const;
  layers::Model& model() { return *model_; }

 private:
  struct Sum {
    std::vector<at::Tensor> gradients;
    double loss = 0;
    double num_targets = 0;
    StatisticsSum statistics;
  };
  Sum leaf(const std::vector<layout::Range>& micro_batches, Observer& observer);
  Sum sum(layout::Range leaves, Observer& observer);
  void forward_backward(layout::Range positions, Sum& leaf, Observer& observer);
  std::vector<at::Tensor> gradients() const;
  int stage_rank_of(const GradientName& gradient) const;
  /// As many parts as the plan's ranks have of it.
  void observe_gradient(int64_t grain, size_t parameter, Observer& observer) const;
  void add_uses(const std::vector<at::Tensor>& sums);
  double gradient_norm() const;

  const plan::Plan& plan_;
  const Dataset& dataset_;
  data::Loader loader_;
  /// The leaves of the tree: each is micro-batches whose gradients are added in sequence.
  std::vector<std::vector<layout::Range>> leaves_;
  std::shared_ptr<layers::Model> model_;
  std::vector<layers::LayerScope> scopes_;
  std::vector<parallel::TiedUse> uses_;
  std::vector<at::Tensor> parameters_;         ///< That learn, then the leaves of uses.
  std::vector<GradientName> names_;            ///< Of each.
  std::vector<layout::Placement> placements_;  ///< Of each, if ranks cut the model.
  layout::FlatLayout flat_;
  at::Tensor gradients_;
  std::optional<parallel::tensor::BlockNorm> block_norm_;  ///< Of a model in blocks.
  std::unique_ptr<parallel::FlatOptimizer> optimizer_;
  layers::Batch batch_;
  int64_t step_ = 0;
};

/// Runs `steps` steps and returns the observed values.
report::ObservedRun observe(OneProcess& job, int64_t steps, const ObserveOptions& options = {});

/// Runs all steps of the plan and returns the observed values. Sets the process's kernels and threads.
report::ObservedRun observe_one_process(const plan::Plan& plan, const Dataset& dataset,
                                        const ObserveOptions& options = {},
                                        const MakeModel& make = {});

}  // namespace hanji::train
