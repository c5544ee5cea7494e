#pragma once

#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/models/gpt.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/optimizer.h"
#include "hanji/plan/plan.h"
#include "hanji/train/grain_sums.h"

namespace hanji::train {

/// What one rank trains: the parts that a step touches, made by assemble().
///
/// The members end in the reverse order of their making: hooks before the model they hang on.
struct Job {
  std::shared_ptr<models::GptImpl> model;
  parallel::Replicas replicas;
  parallel::FlatAdamW optimizer;
  comm::Group group;
  c10::Device device;                              ///< Where the model and its batches lie.
  std::optional<GrainSums> totals = std::nullopt;  ///< Of a step's grains, where bits are stable.
};

/// Numbers that every rank tells every other in a step: loss, tokens, two kinds of stop.
inline constexpr int64_t kNumTotals = 4;

/// How the plan's gradients become one: the plain sum over ranks, or over grains where bits are
/// stable.
parallel::DataParallelOptions reduction(const plan::Plan& plan);

/// Builds model, reducer and optimizer of the plan on this rank of `group`, on the device whose
/// tensors the group moves. Parameters, gradients and moments share one flat layout.
///
/// Order   collective: every rank of the group calls it with the same plan.
/// Errors  throws what data_parallel() throws.
Job assemble(const plan::Plan& plan, const comm::Group& group,
             const parallel::DataParallelOptions& options);
Job assemble(const plan::Plan& plan, const comm::Group& group);

}  // namespace hanji::train
