#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layers/flow.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/pipeline/pipeline.h"
#include "hanji/parallel/tensor/block_norm.h"
#include "hanji/parallel/tied_uses.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/grain_sums.h"
#include "hanji/train/strategy.h"

namespace hanji::train {

/// The parts of a step on one rank, made by assemble().
///
/// Members are destroyed in reverse order: hooks before their model.
struct Job {
  std::shared_ptr<layers::Model> model;
  std::vector<layers::LayerScope> scopes;  ///< Around each layer in training.
  std::unique_ptr<Strategy> strategy;
  comm::Group group;  ///< Of all ranks.
  /// Whose gradients add up: one of each data coordinate, or all that have terms.
  comm::Group data;
  parallel::Pipeline pipeline;                      ///< Of one stage, if `stages` is empty.
  parallel::TiedParameters tied;                    ///< Of several stages.
  std::vector<parallel::TiedUse> uses = {};         ///< For stable bits: of this rank's layers,
  std::optional<parallel::Replicas> use_sums = {};  ///< and the sums of their gradients, if any.
  std::optional<comm::Group> peers;                 ///< Ranks that see the same samples, if any.
  std::optional<comm::Group> cut;                   ///< Of them, those that cut the model, if any.
  std::optional<comm::Group> stages;                ///< Those that share out its layers, if any.
  std::optional<comm::Group> readers;               ///< Those on this host, if it is not alone.
  std::optional<comm::Group> context;               ///< Those that have its tokens, if several.
  bool is_axial = false;                            ///< They cut its activations instead.
  c10::Device device;                               ///< Of the model and its batches.
  std::optional<GrainSums> totals = std::nullopt;   ///< For stable bits: over a step's grains.
  std::optional<parallel::tensor::BlockNorm> block_norm = {};  ///< In blocks, or stable in stages.
};

/// Whether each of the ranks that see the same samples has a term of their loss and gradients, and is in Job::data
/// as if it saw samples of its own: those of axial and cp, but in stable, where layers add up their terms.
inline bool adds_terms_of_peers(const Job& job) {
  return (job.is_axial || job.context) && !job.totals;
}

/// Numbers of each data coordinate that are summed over all ranks in a step: loss, targets, two kinds
/// of stop, then the model's statistics.
inline constexpr int64_t kNumTotals = 4;

/// The reduction of the replicas' gradients: the sum over data coordinates, for stable bits over
/// grains.
parallel::DataParallelOptions reduction(const plan::Plan& plan);

/// The parameters that learn in a range of layers, again for each layer that reads them.
std::vector<at::Tensor> learning_in(const layers::Model& model, layout::Range layers);

/// Stable: as Strategy::begin_grain(), for each use of tied weights too.
void begin_grain(Job& job, int64_t index, size_t stage);

/// Adds up the gradients of all uses of tied weights, those in stages of other ranks too. Collective.
void sum_tied_gradients(const Job& job);

/// Replaces values on the host by those of the rank with the last stage. Collective.
void take_from_last_stage(at::Tensor& values, const Job& job, std::string_view label);

/// The norm of the sum of all gradients of a step, of all parts of the model. Collective.
double gradient_norm(const Job& job);

/// Throws kMismatch where ranks that should have the same parameters have not: those of different data
/// coordinates, and of what is whole those that cut the model. Collective.
void check_parameters(const Job& job);
/// The latter alone.
void check_whole_parameters(const Job& job);

/// Calls and bytes of all groups of the job.
comm::Stats stats_of(const Job& job);

/// Makes the plan's model and strategy on this rank of `group`, on the device of the group's tensors.
///
/// Order   collective: every rank of the group calls it with the same plan.
/// Errors  throws the errors of the strategy.
Job assemble(const plan::Plan& plan, const comm::Group& group, const MakeModel& make = {});
/// The same with replicas that reduce as `options` specify.
Job assemble(const plan::Plan& plan, const comm::Group& group,
             const parallel::DataParallelOptions& options, const MakeModel& make = {});

}  // namespace hanji::train
