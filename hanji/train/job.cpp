#include "hanji/train/job.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "hanji/comm/broadcast.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/message.h"
#include "hanji/comm/stats.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/server_plan.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/initial_file.h"
#include "hanji/train/make_model.h"
#include "hanji/train/optimizer.h"
#include "hanji/train/replicated_strategy.h"
#include "hanji/train/served_strategy.h"
#include "hanji/train/sharded_strategy.h"
#include "hanji/train/state.h"

namespace hanji::train {
namespace {

/// The job's ranks by what they see: across data coordinates, and within one.
struct Ranks {
  comm::Group all;
  comm::Group data;
  std::optional<comm::Group> peers = {};
  std::optional<comm::Group> cut = {};
  std::optional<comm::Group> stages = {};
  /// Of the same data coordinate and host; absent where this rank is alone.
  std::optional<comm::Group> readers = {};
  std::optional<comm::Group> context = {};
  bool is_axial = false;

  /// Who cuts the model, or its activations.
  parallel::tensor::Axis axis() const {
    if (is_axial) return parallel::tensor::Axis(*peers);
    return cut ? parallel::tensor::Axis(*cut) : parallel::tensor::Axis();
  }
  ModelAxes axes() const {
    return {axis(), context ? parallel::tensor::Axis(*context) : parallel::tensor::Axis()};
  }
};

bool is_stable(const plan::Plan& plan) { return plan::stable_grains(plan).count > 0; }

std::optional<comm::Group> peers_on_host(const plan::Plan& plan, const Ranks& ranks) {
  if (!plan.hosts.several()) return ranks.peers;
  const comm::Group readers =
      ranks.all.subgroup(plan::readers_of(plan, ranks.all.rank()), "readers");
  return readers.size() > 1 ? std::optional(readers) : std::nullopt;
}

Ranks divide(const plan::Plan& plan, const comm::Group& group) {
  if (group.recorder())
    group.recorder()->set_coordinates(layout::describe_coordinates(plan.mesh, group.rank()));
  if (plan.mesh.num_data_coordinates() == plan.ranks) return {group, group};
  const bool is_axial = plan.mesh.degree("axial") > 1;
  // In `run`, ranks of axial and cp have terms of the loss of their samples, and all terms of all samples
  // add up; in `stable` the layers have done so.
  const std::vector<int> summed =
      is_stable(plan) ? plan.mesh.data_group(group.rank()) : plan.mesh.gradient_group(group.rank());
  Ranks ranks{
      .all = group,
      .data =
          static_cast<int>(summed.size()) == group.size() ? group : group.subgroup(summed, "data"),
      .peers = group.subgroup(plan.mesh.data_peers(group.rank()), is_axial ? "axial" : "peers"),
      .is_axial = is_axial};
  ranks.readers = peers_on_host(plan, ranks);
  if (plan.mesh.degree("tp") > 1) {
    ranks.cut = group.subgroup(plan.mesh.members(group.rank(), "tp").or_throw(), "tp");
  }
  if (plan.mesh.degree("cp") > 1) {
    ranks.context = group.subgroup(plan.mesh.members(group.rank(), "cp").or_throw(), "cp");
  }
  if (plan.mesh.degree("pp") > 1) {
    ranks.stages = group.subgroup(plan.mesh.members(group.rank(), "pp").or_throw(), "pp");
  }
  return ranks;
}

/// Of a pipeline, the layers of this rank's stages; else empty: all.
std::vector<layout::Range> own_layers(const plan::Plan& plan, const Ranks& ranks) {
  std::vector<layout::Range> own;
  if (!ranks.stages) return own;
  const std::vector<layout::Range> stages = plan::stages_of(plan);
  const std::vector<int> rank_of_stage = plan::ranks_of_stages(plan);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (rank_of_stage[stage] == ranks.stages->rank()) own.push_back(stages[stage]);
  }
  return own;
}

/// What a rank computes of the model; without a pipeline all of it.
struct StagedModel {
  parallel::Pipeline pipeline;
  parallel::TiedParameters tied;
  std::optional<parallel::tensor::BlockNorm> norm = {};  ///< For stable bits, as the uses.
  std::vector<parallel::TiedUse> uses = {};
  std::vector<parallel::GrainPart> parts = {};  ///< What backwards reach, leaves of uses too.
};

/// What the backwards of each stage reach, and for stable bits what is summed over grains by itself: each
/// use of a parameter, and the parameters of each stage.
void divide_by_stage(const layers::Model& model, const plan::Plan& plan, const Ranks& ranks,
                     StagedModel& staged) {
  const bool stable = is_stable(plan);
  const parallel::Stages& stages = staged.pipeline.stages();
  std::vector<layout::Range> own;
  for (int stage = 0; stage <= stages.last(); ++stage) {
    if (staged.pipeline.has(stage)) own.push_back(stages.layers[stage]);
  }
  if (stable) staged.uses = parallel::tied_uses(model, own);
  if (!ranks.stages) return;
  for (int stage = 0; stage <= stages.last(); ++stage) {
    parallel::GrainPart& part = staged.parts.emplace_back();
    if (!staged.pipeline.has(stage)) continue;
    const layout::Range layers = stages.layers[stage];
    part.parameters = learning_in(model, layers);
    if (!stable) continue;
    part.grains = plan::grains_in_order(plan, ranks.all.rank(), stage);
    for (const parallel::TiedUse& use : staged.uses) {
      if (layers.begin <= use.layer && use.layer < layers.end) part.parameters.push_back(use.leaf);
    }
  }
}

/// For stable bits of a model in blocks, or in stages, before parameters of other ranks are freed.
std::optional<parallel::tensor::BlockNorm> block_norm(const layers::Model& model,
                                                      const plan::Plan& plan, const Ranks& ranks,
                                                      const parallel::Stages& stages) {
  const auto blocks = static_cast<int>(plan.config.train.cuts.features);
  const bool shares = ranks.stages && is_stable(plan);
  if (blocks == 1 && !shares) return std::nullopt;
  const auto learning = parallel::learning_parameters(model);
  parallel::tensor::NormSharers sharers;
  if (shares) {
    sharers.add_up = [group = *ranks.stages](at::Tensor& sums) {
      comm::all_reduce_on_host(sums, group, {.label = "norms"});
    };
    for (const parallel::NamedParameter& one : learning) {
      sharers.counted.push_back(stages.first_rank_of(one.tensor, model) == ranks.stages->rank());
    }
  }
  return parallel::tensor::BlockNorm(learning, model.cut(), ranks.axis().in_blocks(blocks),
                                     std::move(sharers));
}

StagedModel stage(layers::Model& model, const plan::Plan& plan, const Ranks& ranks) {
  const bool several = ranks.stages.has_value();
  const comm::Group& group = several ? *ranks.stages : ranks.all;
  const parallel::Stages stages =
      several ? parallel::Stages{plan::stages_of(plan), plan::ranks_of_stages(plan),
                                 plan::split_stages(plan)}
              : parallel::Stages{{{0, model.num_layers()}}, {ranks.all.rank()}};
  auto norm = block_norm(model, plan, ranks, stages);
  if (several) parallel::keep_stages_of(group.rank(), stages, model);
  StagedModel staged{{model, stages, group}, {model, stages, group}, std::move(norm)};
  divide_by_stage(model, plan, ranks, staged);
  return staged;
}

/// The sums of the gradients of tied weights' later uses.
std::optional<parallel::Replicas> sums_of_uses(const plan::Plan& plan, const StagedModel& staged,
                                               const Ranks& ranks) {
  if (staged.uses.empty()) return std::nullopt;
  std::vector<parallel::NamedParameter> leaves;
  for (const parallel::TiedUse& use : staged.uses) leaves.push_back({use.parameter.name, use.leaf});
  parallel::DataParallelOptions options = reduction(plan);
  options.parts = staged.parts;
  options.check_every = 0;
  return parallel::data_parallel(std::move(leaves), ranks.data, options);
}

/// What a rank has of each parameter, which others along "cp" have too: all, or its shard.
std::vector<parallel::NamedParameter> own_parameters(const Job& job) {
  std::vector<parallel::NamedParameter> own;
  for (const StateTensor& one : view_of(job).parameters) {
    own.push_back({one.name, one.held ? one.held->values : one.tensor});
  }
  return own;
}

/// What ranks that cut the model have in full.
std::vector<parallel::NamedParameter> whole_parameters(const Job& job) {
  std::vector<parallel::NamedParameter> whole;
  for (const StateTensor& one : view_of(job).parameters) {
    if (!one.placement.is_cut()) whole.push_back({one.name, whole_of(one, job)});
  }
  return whole;
}

/// Parts are found by a rank's place on the axis.
void check_cut(const layout::Cut& cut, const std::optional<comm::Group>& axis) {
  if (cut.degree == 1) return;
  if (axis && axis->size() == cut.degree && axis->rank() == cut.index) return;
  throw Error(base::invalid_argument(fmt::format(
      "the model has part {} of {} of its parameters on rank {} of {} of tp; make it on "
      "MakeOptions::axis",
      cut.index, cut.degree, axis ? axis->rank() : 0, axis ? axis->size() : 1)));
}

Job job_of(const plan::Plan& plan, std::shared_ptr<layers::Model> model, StagedModel staged,
           std::unique_ptr<Strategy> strategy, const Ranks& ranks) {
  check_cut(model->cut(), ranks.cut);
  std::optional<GrainSums> totals;
  if (const plan::StableGrains grains = plan::stable_grains(plan); grains.count > 0) {
    totals.emplace(schedule::grain_tree(grains.count, grains.owners), ranks.data,
                   kNumTotals + model->num_statistics());
  }
  std::vector<layers::LayerScope> scopes = training_scopes(plan.config, *model);
  std::ranges::copy(strategy->scopes(), std::back_inserter(scopes));
  if (!staged.uses.empty()) scopes.push_back(parallel::use_scope(staged.uses));
  auto use_sums = sums_of_uses(plan, staged, ranks);
  return {.model = std::move(model),
          .scopes = std::move(scopes),
          .strategy = std::move(strategy),
          .group = ranks.all,
          .data = ranks.data,
          .pipeline = std::move(staged.pipeline),
          .tied = std::move(staged.tied),
          .uses = std::move(staged.uses),
          .use_sums = std::move(use_sums),
          .peers = ranks.peers,
          .cut = ranks.cut,
          .stages = ranks.stages,
          .readers = ranks.readers,
          .context = ranks.context,
          .is_axial = ranks.is_axial,
          .device = comm::device_of(ranks.all),
          .totals = std::move(totals),
          .block_norm = std::move(staged.norm)};
}

/// Where a forward on the host casts each weight once: of stages others come between, and what recomputes has no cast
/// after its forward.
bool rounds_weights(const plan::Plan& plan) {
  return plan.kernels.precision == plan::Precision::kBFloat16 &&
         plan.config.compute.device == plan::Device::kCpu && !plan.config.compute.recompute &&
         plan.mesh.degree("pp") == 1;
}

ReplicatedOptions replicated(const plan::Plan& plan,
                             const parallel::DataParallelOptions& reduction) {
  ReplicatedOptions options{.reduction = reduction,
                            .make_optimizer = optimizer_of(plan),
                            .rule = parallel::decay_matrices(plan.config.train.weight_decay),
                            .rounds = rounds_weights(plan)};
  const plan::OffloadConfig& offload = plan.config.offload;
  if (offload.optimizer == plan::Place::kMemory) return options;
  options.offload = {.folder = offload.folder,
                     .piece_elements = plan::kOffloadPieceElements,
                     .num_windows = plan::kOffloadWindows};
  return options;
}

parallel::ParameterServerOptions served(const plan::Plan& plan) {
  plan::StableGrains grains = plan::stable_grains(plan);
  return {.average = parallel::Average::kSum,
          .num_grains = grains.count,
          .owners = std::move(grains.owners),
          .make_optimizer = optimizer_of(plan),
          .rule = parallel::decay_matrices(plan.config.train.weight_decay),
          .message_bytes = plan::message_bytes(plan.config.comm)};
}

std::vector<at::Tensor> tensors_of(const std::vector<parallel::NamedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const parallel::NamedParameter& one : parameters) tensors.push_back(one.tensor);
  return tensors;
}

ShardedOptions sharded(const plan::Plan& plan, const StagedModel& staged) {
  const plan::Sharding data = plan.config.parallel.data;
  plan::StableGrains grains = plan::stable_grains(plan);
  const bool on_one_host = !plan::shards_span_hosts(plan);
  const bool share_memory = plan.config.parallel.share_memory;
  return {.groups = plan.mesh.degree("dp"),
          .shards_parameters = plan::cuts_parameters(data),
          .sharding = {.average = parallel::Average::kSum,
                       .share_memory = on_one_host && share_memory,
                       .shards_together = on_one_host && !share_memory,
                       .num_grains = grains.count,
                       .owners = std::move(grains.owners),
                       .parts = staged.parts,
                       .alone = tensors_of(staged.tied.parameters())},
          .whole_gradients = data == plan::Sharding::kZero1 ? parallel::WholeGradients::kKept
                                                            : parallel::WholeGradients::kFreed,
          .unit_bytes = plan.config.comm.bucket_bytes,
          .make_optimizer = optimizer_of(plan),
          .rule = parallel::decay_matrices(plan.config.train.weight_decay),
          .counts = [&](const at::Tensor& one) { return staged.tied.is_first(one); }};
}

/// This rank's part of the model, with its first values.
std::shared_ptr<layers::Model> begin_model(const plan::Plan& plan, const comm::Group& group,
                                           const Ranks& ranks, const MakeModel& make) {
  auto model =
      make_model(plan, make, comm::device_of(group), ranks.axes(), own_layers(plan, ranks));
  base::throw_if_error(load_initial_file(plan.config.model, *model));
  return model;
}

}  // namespace

parallel::DataParallelOptions reduction(const plan::Plan& plan) {
  plan::StableGrains grains = plan::stable_grains(plan);
  return {.average = parallel::Average::kSum,
          .bucket_bytes = plan.config.comm.bucket_bytes,
          .check_every = plan.config.comm.check_every,
          .num_grains = grains.count,
          .owners = std::move(grains.owners)};
}

std::vector<at::Tensor> learning_in(const layers::Model& model, layout::Range layers) {
  std::vector<at::Tensor> found;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    for (const at::Tensor& one : model.layer_parameters(i)) {
      if (one.requires_grad()) found.push_back(one);
    }
  }
  return found;
}

double gradient_norm(const Job& job) {
  if (job.block_norm) {
    return job.block_norm->of(job.strategy->parameters(), job.strategy->gradients());
  }
  const double mine = job.strategy->gradient_norm();
  if (!job.stages && !job.cut) return mine;
  at::Tensor squares = at::full({1}, mine * mine, at::kDouble);
  for (const auto& parts : {job.cut, job.stages}) {
    if (parts) comm::all_reduce_on_host(squares, *parts, {.label = "norm"});
  }
  return std::sqrt(squares.item<double>());
}

void begin_grain(Job& job, int64_t index, size_t stage) {
  job.strategy->begin_grain(index, stage);
  if (job.use_sums) job.use_sums->grain(index, stage);
}

void sum_tied_gradients(const Job& job) {
  const auto& parameters = job.strategy->parameters();
  for (const parallel::TiedUse& use : job.uses) {
    if (!use.leaf.grad().defined()) continue;
    const auto found =
        std::ranges::find(parameters, use.parameter.name, &parallel::NamedParameter::name);
    job.strategy->add_gradient(found - parameters.begin(), use.leaf.grad());
  }
  if (job.stages) job.strategy->sum_tied(job.tied);
}

void take_from_last_stage(at::Tensor& values, const Job& job, std::string_view label) {
  if (!job.stages) return;
  comm::broadcast(values, job.pipeline.stages().ranks.back(), *job.stages, {.label = label}).wait();
}

void check_parameters(const Job& job) {
  job.strategy->check_parameters();
  check_whole_parameters(job);
}

void check_whole_parameters(const Job& job) {
  if (job.cut) parallel::check_same_values(whole_parameters(job), *job.cut);
  // Else the strategy has compared all ranks.
  if (job.is_axial && !adds_terms_of_peers(job))
    parallel::check_same_values(whole_parameters(job), *job.peers);
  if (job.context && !adds_terms_of_peers(job))
    parallel::check_same_values(own_parameters(job), *job.context);
  job.tied.check_same(job.strategy->state().parameters);
}

comm::Stats stats_of(const Job& job) {
  comm::Stats sum{.times = comm::CallTimes()};
  // A data coordinate that is alone has nobody to sum with.
  if (!job.peers || job.data.size() > 1) comm::add(sum, job.strategy->stats());
  for (const auto& group : {job.peers, job.cut, job.stages, job.context}) {
    if (group) comm::add(sum, group->stats());
  }
  if (job.stages) {
    comm::add(sum, job.tied.stats());
    sum.wire_bytes += job.pipeline.sent_bytes();
    sum.network_bytes += job.pipeline.network_bytes();
  }
  // Between hosts, where stages send alone, nobody tells what a message cost.
  const auto messages = comm::message_times(job.group);
  if (messages || job.stages) comm::add(sum, {.times = messages});
  return sum;
}

Job assemble(const plan::Plan& plan, const comm::Group& group, const MakeModel& make) {
  const plan::Sharding data = plan.config.parallel.data;
  if (data == plan::Sharding::kReplicas) return assemble(plan, group, reduction(plan), make);
  const Ranks ranks = divide(plan, group);
  auto model = begin_model(plan, group, ranks, make);
  StagedModel staged = stage(*model, plan, ranks);
  std::unique_ptr<Strategy> strategy;
  if (data == plan::Sharding::kServer) {
    strategy = std::make_unique<ServedStrategy>(*model, ranks.data, served(plan));
  } else {
    strategy = std::make_unique<ShardedStrategy>(*model, ranks.data, sharded(plan, staged));
  }
  return job_of(plan, std::move(model), std::move(staged), std::move(strategy), ranks);
}

Job assemble(const plan::Plan& plan, const comm::Group& group,
             const parallel::DataParallelOptions& options, const MakeModel& make) {
  const Ranks ranks = divide(plan, group);
  auto model = begin_model(plan, group, ranks, make);
  StagedModel staged = stage(*model, plan, ranks);
  ReplicatedOptions replicas = replicated(plan, options);
  replicas.reduction.parts = staged.parts;
  replicas.counts = [&](const at::Tensor& one) { return staged.tied.is_first(one); };
  auto strategy = std::make_unique<ReplicatedStrategy>(*model, ranks.data, replicas);
  return job_of(plan, std::move(model), std::move(staged), std::move(strategy), ranks);
}

}  // namespace hanji::train
