#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/layout/split.h"
#include "hanji/plan/context.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/internal/check_inputs.h"
#include "hanji/plan/internal/json_fields.h"
#include "hanji/plan/memory_advice.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"

namespace hanji::plan {
namespace {

int64_t or_else(int64_t value, int64_t otherwise) { return value == kAuto ? otherwise : value; }

/// Fills a Plan field by field; each step reads what the earlier ones decided.
class Planner {
 public:
  explicit Planner(const PlanInputs& inputs) : inputs_(inputs) {
    plan_.config = inputs.config;
    plan_.data = inputs.data;
    plan_.kernels = inputs.kernels;
    plan_.times = inputs.times;
    plan_.rates = inputs.rates;
    plan_.load = inputs.load;
    if (inputs.config.compute.device != Device::kCuda) plan_.process = inputs.process;
    plan_.hosts.ranks = inputs.ranks_per_host;
    if (plan_.hosts.several()) plan_.hosts.link = choose_link(inputs.config.comm, inputs.link);
  }

  Result<Plan> plan();

 private:
  bool on_gpus() const { return inputs_.config.compute.device == Device::kCuda; }
  int ranks_on_host() const { return most_ranks_on_host(plan_); }
  int64_t budget() const;
  int64_t charged(const std::vector<MemoryLine>& lines) const;
  int64_t charged_for_process(const std::vector<MemoryLine>& lines) const;
  Status refuse_memory(int64_t micro_batch) const;
  bool is_stable() const { return inputs_.config.train.bits == Bits::kStable; }
  Status decide_model();
  Status decide_ranks();
  Status decide_mesh();
  Status split_batch();
  void decide_stages();
  std::vector<std::vector<int64_t>> gathers_of_pipeline() const;
  int64_t cap_of_micro_batch(int64_t largest) const;
  Status decide_micro_batch();
  void set_micro_batch(int64_t micro_batch);
  int cores_of_rank() const { return std::max(1, inputs_.machine.usable_cores / ranks_on_host()); }
  int64_t most_steps_ahead();
  void decide_reading(StepFacts& facts);
  void resolve_config();
  std::string job_hash() const;

  const PlanInputs& inputs_;
  Plan plan_;
};

Status Planner::decide_model() {
  Config& config = plan_.config;
  config.model = with_vocabulary(resolved(config.model), inputs_.data.vocabulary);
  if (needs_counting(config) && !inputs_.model) {
    return base::invalid_argument(
        fmt::format("model.preset = {}: nobody has counted its layers; plan it by train::prepare()",
                    config.model.preset));
  }
  plan_.model = facts_of_model(config, inputs_.model);
  return {};
}

Status Planner::decide_ranks() {
  const Config& config = inputs_.config;
  const auto shares = static_cast<int64_t>(config.train.split.size());
  const int64_t num_grains = config.train.global_batch / config.train.grain;
  const int64_t places = on_gpus() ? inputs_.gpus.count : inputs_.machine.usable_cores;
  const int64_t peers = ranks_per_data_coordinate(config.mesh);
  const int64_t most = std::min({places / peers, num_grains, base::kMaxRanksPerHost / peers});
  const MeshConfig& mesh = config.mesh;
  const int64_t fsdp = cuts_states(config.parallel.data) ? mesh.fsdp : 1;
  const bool has_mesh = mesh.dp != kAuto && fsdp != kAuto;
  const int64_t automatic = shares > 0 ? shares
                            : has_mesh ? mesh.dp * fsdp
                                       : std::max<int64_t>(1, most);
  plan_.ranks = static_cast<int>(or_else(config.run.ranks, automatic * peers));
  HANJI_RETURN_IF_ERROR(decide_mesh());
  const int cores = inputs_.machine.usable_cores / plan_.ranks;
  // In stable the number of threads belongs to the job: it must not follow from the ranks.
  const int automatic_threads = is_stable() ? 1 : std::max(1, cores);
  plan_.threads = static_cast<int>(or_else(config.compute.threads, automatic_threads));
  plan_.waits = topology::choose_wait_policy({.ranks = ranks_on_host(),
                                              .threads = plan_.threads,
                                              .cpus = topology::cpus_of(inputs_.machine),
                                              .cpus_of_others = inputs_.cpus_of_others,
                                              .setting = inputs_.wait_setting,
                                              .are_started = inputs_.are_started});
  return {};
}

/// Groups are as large as they can be on one host unless they were asked for otherwise.
Status Planner::decide_mesh() {
  const Sharding data = inputs_.config.parallel.data;
  MeshConfig degrees = inputs_.config.mesh;
  const int64_t coordinates = plan_.ranks / ranks_per_data_coordinate(degrees);
  if (!cuts_states(data)) {
    degrees.dp = coordinates;
    degrees.fsdp = 1;
  } else {
    const bool in_hosts = plan_.hosts.several() && data == Sharding::kHybrid;
    const int64_t inner = degrees.cp * degrees.tp * degrees.axial;
    const int64_t group = degrees.fsdp != kAuto ? degrees.fsdp
                          : in_hosts
                              ? std::max<int64_t>(1, ranks_that_divide(plan_.hosts.ranks) / inner)
                              : coordinates;
    degrees.dp = or_else(degrees.dp, coordinates / group);
    degrees.fsdp = coordinates / degrees.dp;
  }
  std::vector<layout::Axis> axes;
  for (const auto& [axis, key, degree] : kAxisKeys) {
    const bool always = axis == "dp" || (axis == "fsdp" && cuts_states(data));
    if (!always && degrees.*degree == 1) continue;
    axes.push_back({std::string(axis), static_cast<int>(degrees.*degree)});
  }
  HANJI_ASSIGN_OR_RETURN(plan_.mesh, layout::MeshShape::create(std::move(axes), plan_.ranks));
  return {};
}

/// By rank of the pipeline; empty where nothing is gathered.
std::vector<std::vector<int64_t>> Planner::gathers_of_pipeline() const {
  std::vector<std::vector<int64_t>> all;
  if (!gathers_parameters(plan_)) return all;
  for (const int rank : plan_.mesh.members(0, "pp").or_throw()) {
    all.push_back(gathers_of(plan_, rank).times);
  }
  return all;
}

Status Planner::split_batch() {
  const TrainConfig& train = inputs_.config.train;
  HANJI_ASSIGN_OR_RETURN(const auto shares,
                         layout::split_grains(train.global_batch / train.grain,
                                              plan_.mesh.num_data_coordinates(), train.split));
  for (const layout::Range grains : shares) {
    plan_.shares.push_back({.samples = {grains.begin * train.grain, grains.end * train.grain}});
  }
  plan_.cpus = topology::cpus_per_rank(inputs_.machine, plan_.ranks);
  plan_.cpus.resize(plan_.ranks);
  // More threads than CPUs of the mask would share them.
  for (auto& cpus : plan_.cpus) {
    if (std::ssize(cpus) < plan_.threads) cpus.clear();
  }
  return {};
}

/// Of the model's layers, unless they were cut by hand.
void Planner::decide_stages() {
  PipelineConfig& pipeline = plan_.config.pipeline;
  if (plan_.mesh.degree("pp") == 1 || !pipeline.cut.empty()) return;
  const int stages = num_stages(plan_.config);
  if (stages > std::ssize(plan_.model.layers)) return;
  for (const layout::Range one : cut_stages(layer_seconds(plan_.model, plan_.times), stages)) {
    if (one.begin > 0) pipeline.cut.push_back(static_cast<double>(one.begin));
  }
}

void Planner::set_micro_batch(int64_t micro_batch) {
  plan_.micro_batch = micro_batch;
  for (DataShare& share : plan_.shares) {
    share.num_micro_batches = (share.samples.size() + micro_batch - 1) / micro_batch;
  }
  plan_.memory = largest_rank_memory(plan_, micro_batch);
}

/// What a rank is held to: what lies once for all ranks of a group is shared out among them.
int64_t Planner::charged(const std::vector<MemoryLine>& lines) const {
  if (on_gpus()) return device_bytes(lines);
  const auto shards = shards_of(plan_);
  const bool served = inputs_.config.parallel.data == Sharding::kServer;
  const int64_t process = charged_for_process(lines);
  if (!shards && !served) return total_bytes(lines) + process;
  const int64_t once = served ? line_bytes(lines, "optimizer") : bytes_per_group(*shards, lines);
  return total_bytes(lines) + process - once +
         once / (served ? plan_.mesh.num_data_coordinates() : shards->ranks);
}

/// Of ranks that are there already what is free has no longer; the launcher has mapped the libraries.
int64_t Planner::charged_for_process(const std::vector<MemoryLine>& lines) const {
  const std::vector<MemoryLine> own = process_lines(plan_, lines);
  return total_bytes(own) - (inputs_.are_started ? line_bytes(own, "process") : 0);
}

/// Bytes that a rank may have where it computes.
int64_t Planner::budget() const {
  const auto of = [](int64_t bytes) {
    return static_cast<int64_t>(kUsableMemory * static_cast<double>(bytes));
  };
  const int ranks = ranks_on_host();
  if (!on_gpus()) return of(inputs_.machine.available_bytes) / ranks;
  return inputs_.gpus.free_bytes > 0 ? of(inputs_.gpus.free_bytes) : INT64_MAX;
}

/// In stable a forward is one grain, whatever larger cap is given. A pipeline takes as many micro-batches
/// as were asked for, else the number up to four per rank that its schedule has.
int64_t Planner::cap_of_micro_batch(int64_t largest) const {
  const TrainConfig& train = inputs_.config.train;
  if (is_stable()) return train.grain;
  if (train.micro_batch != kAuto || plan_.mesh.degree("pp") == 1) {
    return or_else(train.micro_batch, largest);
  }
  const auto samples_of = [&](int64_t micro_batches) {
    const int64_t grains = (largest / train.grain + micro_batches - 1) / micro_batches;
    return grains * train.grain;
  };
  const PipelineConfig& pipeline = inputs_.config.pipeline;
  const bool is_fixed = pipeline.micro_batches != kAuto || pipeline.schedule == PipelineKind::kUser;
  const int64_t most = micro_batches_asked(inputs_.config);
  for (int64_t count = most; !is_fixed && count > 0; --count) {
    const int64_t samples = samples_of(count);
    if (std::ranges::all_of(plan_.shares, [&](const DataShare& share) {
          return schedule_of(plan_.config, (share.samples.size() + samples - 1) / samples).ok();
        })) {
      return samples;
    }
  }
  return samples_of(most);
}

Status Planner::decide_micro_batch() {
  const TrainConfig& train = inputs_.config.train;
  const int64_t largest = largest_share(plan_);
  int64_t micro_batch = std::min(cap_of_micro_batch(largest), largest);
  for (DataShare& share : plan_.shares) {
    share.num_micro_batches = (share.samples.size() + micro_batch - 1) / micro_batch;
  }
  HANJI_RETURN_IF_ERROR(check_pipeline(plan_));
  HANJI_RETURN_IF_ERROR(check_gathers(plan_));
  const auto fits = [&](int64_t samples) {
    return charged(largest_rank_memory(plan_, samples)) <= budget();
  };
  if (train.micro_batch == kAuto && !is_stable() && plan_.mesh.degree("pp") == 1) {
    while (micro_batch > train.grain && !fits(micro_batch)) {
      plan_.micro_batch_wanted = std::min(cap_of_micro_batch(largest), largest);
      micro_batch = std::max(train.grain, micro_batch / 2 / train.grain * train.grain);
    }
  }
  set_micro_batch(micro_batch);
  return fits(micro_batch) ? Status() : refuse_memory(micro_batch);
}

/// Names what limits it: a cgroup may leave less than the processes themselves take.
Status Planner::refuse_memory(int64_t micro_batch) const {
  std::string table;
  const std::vector<MemoryLine> own = process_lines(plan_, plan_.memory);
  for (const auto* lines : {&plan_.memory, &own}) {
    for (const MemoryLine& line : *lines) {
      table += fmt::format("\n  {:<14} {:>12}", line.category, base::format_bytes(line.bytes));
    }
  }
  const topology::Machine& machine = inputs_.machine;
  const std::string limit =
      on_gpus() || machine.available_by.empty()
          ? ""
          : fmt::format(": {:.0f} % of the {} that {} leaves a host, among its ranks",
                        100 * kUsableMemory, base::format_bytes(machine.available_bytes),
                        machine.available_by);
  const bool is_process = !on_gpus() && charged_for_process(plan_.memory) > budget();
  return base::out_of_memory(
      fmt::format("{} needs {} at micro_batch {}, but may have {}{}; {}{}{}",
                  plan_.ranks == 1 ? "the rank" : "each of " + base::counted(plan_.ranks, "rank"),
                  base::format_bytes(charged(plan_.memory)), micro_batch,
                  base::format_bytes(budget()), limit, is_process ? "raise that limit, or " : "",
                  memory_advice(plan_, inputs_.config, inputs_.cut_axes), table));
}

void Planner::resolve_config() {
  Config& c = plan_.config;
  c.run.ranks = plan_.ranks;
  for (const AxisKey& one : kAxisKeys) c.mesh.*one.degree = plan_.mesh.degree(one.axis);
  // The model was counted so, unless the configuration says otherwise.
  if (c.mesh.cp > 1) c.parallel.context = context_way(c);
  if (c.mesh.tp > 1 && c.parallel.moves == Moves::kAuto) c.parallel.moves = Moves::kActivations;
  if (c.mesh.axial > 1 && c.parallel.triangle == TriangleWay::kAuto) {
    c.parallel.triangle = TriangleWay::kChannels;
  }
  if (cuts_parameters(c.parallel.data)) c.parallel.reshard = reshard_of(plan_);
  c.train.micro_batch = plan_.micro_batch;
  c.pipeline.micro_batches = plan_.mesh.degree("pp") == 1 ? kAuto : most_micro_batches(plan_);
  c.train.warmup_steps = or_else(c.train.warmup_steps, std::min<int64_t>(100, c.train.steps / 10));
  c.compute.gemm = plan_.kernels.gemm;
  c.compute.attention = plan_.kernels.attention;
  c.compute.threads = plan_.threads;
  c.comm.engine = engine_of(c);
}

/// As many as data.prefetch_bytes and the rank's memory hold; a page cache was checked for one.
int64_t Planner::most_steps_ahead() {
  DataConfig& data = plan_.config.data;
  const int64_t asked = std::exchange(data.prefetch, 0);
  const int64_t without = charged(largest_rank_memory(plan_, plan_.micro_batch));
  data.prefetch = 1;
  const int64_t step = charged(largest_rank_memory(plan_, plan_.micro_batch)) - without;
  data.prefetch = asked;
  const int64_t most = data.cache == FileCache::kProcess ? 1 : INT64_MAX;
  const int64_t room = std::clamp<int64_t>(budget() - without, 0, data.prefetch_bytes);
  return step <= 0 ? most : std::min(most, room / step);
}

void Planner::decide_reading(StepFacts& facts) {
  constexpr int64_t kAheadOfGpus = 2;
  DataConfig& data = plan_.config.data;
  const int64_t most = most_steps_ahead();
  Reading asked{data.workers, data.prefetch};
  if (on_gpus() && data_kind(plan_.config) != DataKind::kTokens) {
    // The cores are free.
    asked.workers = or_else(asked.workers, std::max(1, facts.cores - 1));
    asked.prefetch = or_else(asked.prefetch, asked.workers > 0 ? std::min(kAheadOfGpus, most) : 0);
  }
  facts.reading = choose_reading(reading_facts(facts, plan_.predicted), asked, most);
  data.workers = facts.reading.workers;
  data.prefetch = facts.reading.prefetch;
  plan_.memory = largest_rank_memory(plan_, plan_.micro_batch);
}

/// Of everything that the result depends on apart from rounding: not of ranks, micro_batch,
/// kernels, folders or what is only watched.
std::string Planner::job_hash() const {
  Config job = plan_.config;
  const Config defaults;
  job.run = defaults.run;
  job.checkpoint = defaults.checkpoint;
  job.comm = defaults.comm;
  job.compute = defaults.compute;
  job.parallel = defaults.parallel;
  job.mesh = defaults.mesh;
  job.pipeline = defaults.pipeline;
  job.compute.dtype = plan_.config.compute.dtype;
  job.compute.products = plan_.config.compute.products;
  job.data.cache = defaults.data.cache;
  job.data.workers = job.data.prefetch = 0;
  job.data.prefetch_bytes = defaults.data.prefetch_bytes;
  if (job.data.order != SampleOrder::kQuasi) job.data.pages = defaults.data.pages;
  if (is_stable()) job.compute.threads = plan_.threads;
  job.train.micro_batch = kAuto;
  job.train.split.clear();
  job.train.profile.clear();
  job.train.evaluate_every = job.train.evaluate_batches = job.train.log_every = 0;
  base::Json json = {{"config", config_to_json(job)},
                     {"train_samples", plan_.data.num_train_samples},
                     {"validation_samples", plan_.data.num_validation_samples}};
  if (data_kind(job) == DataKind::kOwn) json["parameters"] = plan_.model.parameter_sizes();
  return base::Sha256().update(base::dump(json)).hex();
}

Result<Plan> Planner::plan() {
  HANJI_RETURN_IF_ERROR(check_inputs(inputs_));
  HANJI_RETURN_IF_ERROR(decide_model());
  HANJI_RETURN_IF_ERROR(decide_ranks());
  HANJI_RETURN_IF_ERROR(check_hosts(plan_));
  HANJI_RETURN_IF_ERROR(split_batch());
  decide_stages();
  HANJI_RETURN_IF_ERROR(decide_micro_batch());
  resolve_config();
  const int64_t bucket_bytes = inputs_.config.comm.bucket_bytes;
  const auto shards = shards_of(plan_);
  plan_.num_buckets = shards
                          ? std::ssize(shards->units)
                          : std::ssize(gradient_buckets(plan_.model.parameter_sizes(), bucket_bytes,
                                                        parameter_bytes(plan_.kernels.precision))
                                           .buckets);
  StepFacts facts{.model = plan_.model,
                  .pipeline = pipeline_facts(plan_),
                  .kernels = plan_.kernels,
                  .times = plan_.times,
                  .rates = plan_.rates,
                  .algorithms = named_algorithms(plan_.config.comm),
                  .shares = plan_.shares,
                  .ranks = plan_.ranks,
                  .cut = plan_.mesh.degree("tp"),
                  .terms = plan_.mesh.degree("cp") * plan_.mesh.degree("axial"),
                  .blocks = static_cast<int>(plan_.config.train.cuts.features),
                  .ranks_on_host = ranks_on_host(),
                  .micro_batch = plan_.micro_batch,
                  .bucket_bytes = bucket_bytes,
                  .stable_grain = is_stable() ? plan_.config.train.grain : 0,
                  .hosts = plan_.hosts,
                  .mesh = plan_.mesh,
                  .shards = shards,
                  .gathers = gathers_of_pipeline(),
                  .served = inputs_.config.parallel.data == Sharding::kServer,
                  .cores = cores_of_rank(),
                  .threads = on_gpus() ? 1 : plan_.threads};  // that launches
  plan_.predicted = predict(facts);
  decide_reading(facts);
  add_reading(facts, plan_.predicted);
  if (on_gpus() && !plan_.times.gpu) plan_.predicted = {};  // no rate of cores is theirs
  plan_.predicted.peak_bytes_per_rank = peak_of_ranks(plan_);
  plan_.job_hash = job_hash();
  return std::move(plan_);
}

}  // namespace

Status check_processes(const PlanInputs& inputs) {
  const int64_t ranks = or_else(inputs.config.run.ranks, 1);
  const int64_t one = inputs.process.private_bytes;
  const auto usable =
      static_cast<int64_t>(kUsableMemory * static_cast<double>(inputs.machine.available_bytes));
  if (inputs.config.compute.device == Device::kCuda || ranks * one <= usable) return {};
  return base::out_of_memory(fmt::format(
      "{} rank{} of {} each, program and libtorch before the first tensor, {} together, exceed {}: "
      "{:.0f} % of the {} that {} leaves; raise that limit, or ask for fewer ranks",
      ranks, ranks == 1 ? "" : "s", base::format_bytes(one), base::format_bytes(ranks * one),
      base::format_bytes(usable), 100 * kUsableMemory,
      base::format_bytes(inputs.machine.available_bytes), inputs.machine.available_by));
}

Result<Plan> make_plan(const PlanInputs& inputs) { return Planner(inputs).plan(); }

}  // namespace hanji::plan
