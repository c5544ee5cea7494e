#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layers/flow.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/grain_sums.h"
#include "hanji/train/strategy.h"

namespace hanji::train {

/// What one rank trains: the parts that a step touches, made by assemble().
///
/// The members end in the reverse order of their making: hooks before the model they hang on.
struct Job {
  std::shared_ptr<layers::Model> model;
  std::vector<layers::LayerScope> scopes;  ///< Around each of its layers in training.
  std::unique_ptr<Strategy> strategy;
  comm::Group group;                               ///< Of all ranks.
  comm::Group data;                                ///< One rank of each data coordinate.
  std::optional<comm::Group> peers;                ///< Ranks that see the same samples, if any.
  c10::Device device;                              ///< Where the model and its batches lie.
  std::optional<GrainSums> totals = std::nullopt;  ///< Of a step's grains, where bits are stable.
};

/// Numbers of each data coordinate that every rank learns in a step: loss, targets, two kinds of stop,
/// before the model's statistics.
inline constexpr int64_t kNumTotals = 4;

/// How the gradients of replicas become one: the plain sum over data coordinates, or over grains
/// where bits are stable.
parallel::DataParallelOptions reduction(const plan::Plan& plan);

/// Builds the plan's model and strategy on this rank of `group`, on the device whose tensors the
/// group moves.
///
/// Order   collective: every rank of the group calls it with the same plan.
/// Errors  throws what the strategy throws.
Job assemble(const plan::Plan& plan, const comm::Group& group, const MakeModel& make = {});
/// The same of replicas that reduce as `options` say.
Job assemble(const plan::Plan& plan, const comm::Group& group,
             const parallel::DataParallelOptions& options, const MakeModel& make = {});

}  // namespace hanji::train
