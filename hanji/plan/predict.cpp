#include "hanji/plan/predict.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "hanji/plan/communication.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
constexpr int64_t kGradientBytes = 4;

/// Of forward and backward: one of three products of equal size, and about that of the rest.
constexpr double kForwardShare = 1.0 / 3;
/// AdamW reads parameter, gradient and two moments and writes three; the norm reads the gradient
/// once more, the next backward writes it.
constexpr double kOptimizerElements = 9;
/// Accumulating a gradient reads it and the sum, and writes the sum.
constexpr double kAccumulatedElements = 3;
/// Copying a gradient reads and writes it.
constexpr double kCopiedElements = 2;
/// What one rank gets of its host's memory while all are busy, for tensors of `bytes` each.
double bytes_per_second(const StepFacts& facts, double bytes) {
  if (facts.times.gpu) return facts.times.gpu->memory_bytes_per_second;
  const auto ranks = static_cast<double>(facts.ranks_on_host);
  const bool cached = bytes * ranks <= static_cast<double>(facts.rates.cache_bytes);
  const double shared =
      cached ? facts.rates.cached_bytes_per_second : facts.rates.memory_bytes_per_second;
  return shared / ranks;
}

/// Of all layers one after the other.
double pass_seconds(const StepFacts& facts, const DataShare& share) {
  const auto samples = static_cast<double>(share.samples.size());
  if (facts.times.gpu) return facts.times.seconds_of(samples, share.num_micro_batches);
  const std::vector<double> layers = layer_seconds(facts.model, facts.times);
  return samples * std::reduce(layers.begin(), layers.end());
}

/// Of the rank that has most.
int64_t parameters_of_rank(const StepFacts& facts) {
  int64_t most = facts.pipeline.ranks.empty() ? facts.model.num_parameters() : 0;
  for (const ModelFacts& one : facts.pipeline.ranks) most = std::max(most, one.num_parameters());
  return most;
}

double forward_and_backward_seconds(const StepFacts& facts, const DataShare& share) {
  const auto passes = static_cast<double>(share.num_micro_batches);
  const double gradients = static_cast<double>(parameters_of_rank(facts) * kGradientBytes);
  const double accumulated = (passes - 1) * kAccumulatedElements * gradients;
  const double accumulation = accumulated / bytes_per_second(facts, 2 * gradients);
  const double passed = facts.pipeline.ranks.empty()
                            ? pass_seconds(facts, share)
                            : facts.pipeline.seconds[&share - facts.shares.data()];
  return passed + accumulation;
}

/// The last backward pass of a step, behind which buckets travel.
double last_backward_seconds(const StepFacts& facts) {
  double seconds = 0;
  for (const DataShare& share : facts.shares) {
    const auto passes = static_cast<double>(share.num_micro_batches);
    seconds = std::max(seconds, forward_and_backward_seconds(facts, share) / passes);
  }
  return (1 - kForwardShare) * seconds;
}

/// Calls run one after another on the wire, none before its gradients are finished.
double hidden_seconds(const std::vector<GradientCall>& calls, double backward_seconds) {
  double wire_free = 0, hidden = 0;
  for (const GradientCall& call : calls) {
    const double begin = std::max(wire_free, call.ready * backward_seconds);
    wire_free = begin + call.network_seconds;
    hidden += std::max(0.0, std::min(wire_free, backward_seconds) - begin);
  }
  return hidden;
}

/// Of its shard where the optimizer is cut; then gradients are copied out of backward, too.
double optimizer_seconds(const StepFacts& facts) {
  const int64_t parameters = parameters_of_rank(facts);
  const double bytes = static_cast<double>(parameters * kGradientBytes);
  const double rate = bytes_per_second(facts, 4 * bytes);
  const double timed = facts.times.update_seconds * static_cast<double>(parameters) /
                       static_cast<double>(facts.model.num_parameters());
  const double updated = timed > 0 ? timed : kOptimizerElements * bytes / rate;
  if (!facts.shards) return updated;
  return updated / facts.shards->ranks + kCopiedElements * bytes / rate;
}

/// Stable: in which the stages of a data coordinate take its grains, each order once.
std::set<std::vector<int64_t>> orders_of_stages(const Plan& plan, int data_coordinate) {
  const DataShare& share = plan.shares[data_coordinate];
  const auto schedule = schedule_of(plan.config, share.num_micro_batches).or_throw();
  const std::vector<bool> split = split_stages(plan);
  std::set<std::vector<int64_t>> orders;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    auto order = schedule::gradient_order(schedule.ranks[schedule.rank_of_stage[stage]], stage,
                                          split[stage]);
    for (int64_t& one : order) one += share.samples.begin / plan.config.train.grain;
    orders.insert(std::move(order));
  }
  return orders;
}

}  // namespace

layout::BucketPlan gradient_buckets(const std::vector<int64_t>& sizes, int64_t bucket_bytes,
                                    int64_t element_bytes) {
  return layout::bucket_plan(sizes, element_bytes, bucket_bytes,
                             std::min(bucket_bytes, kFirstBucketBytes));
}

const DataShare& share_of(const Plan& plan, int rank) {
  return plan.shares[plan.mesh.data_coordinate(rank)];
}

schedule::ActionList step_actions(const Plan& plan, int rank) {
  schedule::ActionList actions = compute_actions(plan, rank);
  const bool unshards = cuts_parameters(plan.config.parallel.data);
  return unshards && reshard_of(plan) == Reshard::kStep ? schedule::with_unshards(actions)
                                                        : actions;
}

schedule::ActionList compute_actions(const Plan& plan, int rank) {
  const int64_t count = share_of(plan, rank).num_micro_batches;
  if (plan.mesh.degree("pp") == 1) return schedule::train_actions(count);
  return schedule_of(plan.config, count).or_throw().ranks[plan.mesh.coordinate(rank, "pp")];
}

std::vector<layout::Range> grain_owners(const std::vector<DataShare>& shares, int64_t grain) {
  std::vector<layout::Range> owners;
  for (const DataShare& share : shares) {
    owners.push_back({share.samples.begin / grain, share.samples.end / grain});
  }
  return owners;
}

StableGrains stable_grains(const Plan& plan) {
  const TrainConfig& train = plan.config.train;
  if (train.bits != Bits::kStable) return {};
  return {train.global_batch / train.grain, grain_owners(plan.shares, train.grain)};
}

std::vector<int64_t> grains_in_order(const Plan& plan, int rank, int stage) {
  const int64_t first = share_of(plan, rank).samples.begin / plan.config.train.grain;
  std::vector<int64_t> grains =
      schedule::gradient_order(step_actions(plan, rank), stage, split_stages(plan)[stage]);
  for (int64_t& one : grains) one += first;
  return grains;
}

std::vector<int64_t> gradient_buffers(const Plan& plan) {
  std::vector<int64_t> buffers(plan.shares.size(), 1);
  const StableGrains grains = stable_grains(plan);
  if (grains.count == 0) return buffers;
  const schedule::GrainTree tree = schedule::grain_tree(grains.count, grains.owners);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i] = tree.ranks[i].num_buffers;
  if (plan.mesh.degree("pp") == 1) return buffers;
  for (size_t data = 0; data < buffers.size(); ++data) {
    for (const auto& order : orders_of_stages(plan, static_cast<int>(data))) {
      const auto fold = schedule::fold_in_order(tree.ranks[data].partials, order);
      buffers[data] = std::max<int64_t>(buffers[data], fold.num_buffers);
    }
  }
  return buffers;
}

int64_t num_gradient_buffers(const Plan& plan) { return std::ranges::max(gradient_buffers(plan)); }

int ranks_of_terms(const Plan& plan) {
  if (plan.config.train.bits == Bits::kStable) return 1;
  return plan.mesh.degree("cp") * plan.mesh.degree("axial");
}

int shard_index(const Plan& plan, int rank) {
  const int terms = ranks_of_terms(plan);
  const int term = plan.mesh.coordinate(rank, "cp") + plan.mesh.coordinate(rank, "axial");
  return plan.mesh.coordinate(rank, "fsdp") * terms + (terms == 1 ? 0 : term);
}

std::vector<int> shard_group(const Plan& plan, int rank) {
  std::vector<int> group =
      ranks_of_terms(plan) > 1 ? plan.mesh.gradient_group(rank) : plan.mesh.data_group(rank);
  const int own = plan.mesh.coordinate(rank, "dp");
  std::erase_if(group, [&](int other) { return plan.mesh.coordinate(other, "dp") != own; });
  return group;
}

std::vector<std::string_view> axes_over_hosts(const Plan& plan) {
  std::vector<std::string_view> found;
  int inner = 1;  // ranks next to each other, of this axis and all inside it
  for (const std::string_view axis : {"axial", "tp", "cp"}) {
    inner *= plan.mesh.degree(axis);
    if (plan.mesh.degree(axis) > 1 && groups_span_hosts(plan.hosts, inner)) found.push_back(axis);
  }
  return found;
}

bool shards_span_hosts(const Plan& plan) {
  if (!cuts_states(plan.config.parallel.data)) return false;
  if (plan.mesh.degree("fsdp") * ranks_of_terms(plan) == 1) return false;
  const int group = plan.ranks / (plan.mesh.degree("pp") * plan.mesh.degree("dp"));
  return groups_span_hosts(plan.hosts, group);
}

std::optional<ShardPlan> shards_of(const Plan& plan, int rank) {
  const Config& config = plan.config;
  if (!cuts_states(config.parallel.data)) return std::nullopt;
  ShardPlan shards{.data = config.parallel.data,
                   .groups = plan.mesh.degree("dp"),
                   .ranks = plan.mesh.degree("fsdp") * ranks_of_terms(plan),
                   .spans_hosts = shards_span_hosts(plan),
                   .element_bytes = parameter_bytes(plan.kernels.precision)};
  cut_model(facts_of_rank(plan, rank), config.comm.bucket_bytes, shards);
  return shards;
}

Prediction predict(const StepFacts& facts) {
  Prediction prediction;
  for (const DataShare& share : facts.shares) {
    prediction.compute_seconds =
        std::max(prediction.compute_seconds, forward_and_backward_seconds(facts, share));
  }
  prediction.compute_seconds += optimizer_seconds(facts);
  if (facts.times.gpu) {
    // The loss; the norm's number was timed with the update. Nobody has timed NCCL.
    prediction.compute_seconds += facts.times.gpu->read_seconds;
    prediction.step_seconds = prediction.compute_seconds;
    return prediction;
  }
  const auto calls = predict_communication(facts, prediction);
  prediction.hidden_transfer_seconds += hidden_seconds(calls, last_backward_seconds(facts));
  prediction.exposed_transfer_seconds =
      prediction.transfer_seconds - prediction.hidden_transfer_seconds;
  prediction.step_seconds = prediction.compute_seconds + prediction.exposed_transfer_seconds;
  return prediction;
}

ReadingFacts reading_facts(const StepFacts& facts, const Prediction& prediction) {
  int64_t samples = 0;
  for (const DataShare& share : facts.shares) samples = std::max(samples, share.samples.size());
  return {.sample_seconds = facts.times.sample_seconds,
          .sample_deviation = facts.times.sample_deviation,
          .samples = samples,
          .step_seconds = prediction.step_seconds,
          .cores = facts.cores,
          .threads = facts.threads};
}

void add_reading(const StepFacts& facts, Prediction& prediction) {
  const ReadingCost cost = reading_cost(reading_facts(facts, prediction), facts.reading);
  prediction.data_seconds = cost.stall_seconds;
  prediction.compute_seconds += cost.slow_seconds;
  prediction.step_seconds += cost.seconds();
  int64_t samples = 0;
  for (const DataShare& share : facts.shares) samples += share.samples.size();
  const double pages = facts.times.pages_per_sample * facts.times.page_seconds;
  const double waiting = pages * static_cast<double>(samples) * facts.ranks_on_host / facts.ranks -
                         prediction.step_seconds;
  if (waiting > 0) {
    prediction.data_seconds += waiting;
    prediction.step_seconds += waiting;
  }
  const auto tokens = static_cast<double>(samples * facts.model.targets_per_sample);
  prediction.tokens_per_second = tokens / prediction.step_seconds;
}

}  // namespace hanji::plan
