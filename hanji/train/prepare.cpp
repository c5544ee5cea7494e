#include "hanji/train/prepare.h"

#include <fmt/format.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "hanji/base/advice.h"
#include "hanji/base/at_end.h"
#include "hanji/base/cache_folder.h"
#include "hanji/base/env.h"
#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/base/log.h"
#include "hanji/base/memory_headroom.h"
#include "hanji/base/units.h"
#include "hanji/base/version.h"
#include "hanji/compute/device.h"
#include "hanji/compute/measure.h"
#include "hanji/compute/measure_gpu.h"
#include "hanji/compute/memory.h"
#include "hanji/cost/measure.h"
#include "hanji/cost/stored.h"
#include "hanji/data/source.h"
#include "hanji/plan/context.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/moves.h"
#include "hanji/plan/schema.h"
#include "hanji/plan/train_limits.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/dataset.h"
#include "hanji/train/gpu_times.h"
#include "hanji/train/measured_once.h"
#include "hanji/train/time_operations.h"

namespace hanji::train {
namespace {

compute::MeasureOptions kernel_options(const plan::Plan& draft) {
  const plan::KernelShapes shapes = plan::kernel_shapes(draft.model);
  return {.shapes = {.batch = draft.micro_batch,
                     .block = shapes.block,
                     .width = shapes.width,
                     .heads = shapes.heads},
          .precision = draft.config.compute.dtype,
          .products = draft.config.compute.products,
          .threads = draft.threads,
          .gemm = draft.config.compute.gemm,
          .attention = draft.config.compute.attention};
}

int64_t last_cache_bytes(const topology::Machine& machine) {
  return machine.caches.empty() ? cost::MeasureOptions().cache_bytes : machine.caches.back().bytes;
}

Result<base::KernelChoice> measure_kernels(const plan::Plan& draft, const plan::Config& asked,
                                           std::optional<base::KernelChoice> before) {
  plan::Plan with_choices = draft;
  with_choices.config.compute = asked.compute;
  compute::MeasureOptions options = kernel_options(with_choices);
  options.before = std::move(before);
  HANJI_ASSIGN_OR_RETURN(const compute::MeasuredKernels found, compute::measure(options));
  return found.choice;
}

/// What every kernel, ours or a library's, may use here: it decides rates and errors.
base::Json instructions() {
  using base::Variable;
  base::Json all = base::Json::array();
  for (const Variable one :
       {Variable::kHanjiSimd, Variable::kAtenCpuCapability, Variable::kOneDnnMaxCpuIsa,
        Variable::kDnnlMaxCpuIsa, Variable::kMklEnableInstructions, Variable::kMklCbwr}) {
    all.push_back(base::read(one).value_or(""));
  }
  return all;
}

/// Everything that the kernels' measurement depends on. Ranks are not of it: bits that no plan
/// changes need kernels that no plan changes, and their threads belong to the job.
base::Json kernels_key(const plan::Plan& draft, const plan::Config& asked,
                       const topology::Machine& machine) {
  const plan::KernelShapes shapes = plan::kernel_shapes(draft.model);
  return {{"build", base::build_id()},
          {"cpu", machine.cpu_model},
          {"micro_batch", draft.micro_batch},
          {"threads", draft.threads},
          {"model", {shapes.width, shapes.heads, shapes.block}},
          {"instructions", instructions()},
          {"asked",
           {name_of(asked.compute.gemm), name_of(asked.compute.attention),
            name_of(asked.compute.dtype), name_of(asked.compute.products)}}};
}

base::Json rates_key(const topology::Machine& machine, int ranks) {
  return {{"build", base::build_id()},
          {"cpu", machine.cpu_model},
          {"cores", machine.usable_cores},
          {"ranks", ranks}};
}

/// Whose value is where the data is: what a model takes of it is Dataset::num_ids.
bool names_a_place(const plan::Key& key) {
  return key.name == "data.text" || key.name == "data.tokens" || key.name == "data.files";
}

/// Everything that a model's operations depend on.
base::Json model_key(const plan::Config& config, const Dataset& dataset,
                     const topology::Machine& machine) {
  base::Json key = {{"build", base::build_id()},
                    {"cpu", machine.cpu_model},
                    {"ids", dataset.num_ids},
                    {"instructions", instructions()},
                    {"dtype", name_of(config.compute.dtype)},
                    {"recompute", config.compute.recompute},
                    {"cut",
                     {config.mesh.tp, config.parallel.sequence, config.train.cuts.features,
                      config.train.cuts.tokens, config.parallel.moves == plan::Moves::kWeights,
                      config.mesh.axial, plan::name_of(config.parallel.triangle), config.mesh.cp,
                      plan::name_of(plan::context_way(config))}}};
  for (const plan::Key& one : plan::schema()) {
    const bool matters = one.name.starts_with("model.") || one.name.starts_with("data.");
    if (matters && !names_a_place(one))
      key[std::string(one.name)] = plan::format_value(one, one.get(config));
  }
  return key;
}

std::string to_text(const base::KernelChoice& choice) { return plan::kernels_to_json(choice); }
std::string to_text(const cost::Rates& rates) { return to_json(rates); }
std::string to_text(const plan::ModelFacts& facts) { return plan::facts_to_json(facts); }
std::string to_text(const plan::OperationTimes& times) { return plan::to_json(times); }

/// One line for all that this process measures.
void warn_unkept(const Status& reason) {
  static std::once_flag warned;
  std::call_once(warned, [&] {
    base::Log(STDERR_FILENO, "hanji")
        .warn("what is measured here is not kept for the next command: " +
              base::with_advice(reason.message(), "HANJI_CACHE_DIR can name another folder"));
  });
}

/// A value, and the load that it was measured under.
template <class T>
struct Marked {
  T value;
  double load = 0;
};

/// Parsed by `parse`; `measure` gets the value that was kept, if there is one. `probe`: as of MeasureOnce.
template <class T, class Parse, class Measure>
Result<Marked<T>> measured(std::string_view kind, const base::Json& key, const Parse& parse,
                           const Measure& measure, const std::function<double()>& probe = {}) {
  MeasureOnce what{
      .kind = std::string(kind), .key = base::dump(key), .probe = probe, .on_unkept = warn_unkept};
  what.is_sound = [&](const std::string& value) { return parse(value).ok(); };
  what.measure = [&](const std::string& before) -> Result<std::string> {
    std::optional<T> kept;
    if (!before.empty()) {
      HANJI_ASSIGN_OR_RETURN(kept, parse(before));
    }
    HANJI_ASSIGN_OR_RETURN(const T found, measure(std::move(kept)));
    return to_text(found);
  };
  HANJI_ASSIGN_OR_RETURN(const MarkedValue found, measured_once(base::cache_folder(), what));
  HANJI_ASSIGN_OR_RETURN(T value, parse(found.value));
  return Marked<T>{std::move(value), found.load};
}

/// Gives a plan what was measured for it.
template <class T>
void take(Marked<T> found, T& value, plan::PlanInputs& inputs) {
  value = std::move(found.value);
  inputs.load = std::max(inputs.load, found.load);
}

/// This process before it has measured anything: with libtorch loaded and the data open it has what a rank
/// begins with. Read once, as what is measured leaves more. Steps run code that has not been touched yet.
Result<plan::ProcessMemory> process_of_a_rank() {
  constexpr int64_t kCodeOfSteps = int64_t{16} << 20;
  static const Result<base::ProcessMemory> first = base::process_memory();
  if (!first.ok()) return first.status();
  return plan::ProcessMemory{first->private_bytes, first->file_bytes + kCodeOfSteps};
}

/// So that a run can be resumed from another folder.
plan::Config with_absolute_paths(plan::Config config) {
  for (std::string* path : {&config.data.text, &config.data.tokens, &config.data.files}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  return config;
}

bool on_gpus(const plan::PlanInputs& inputs) {
  return inputs.config.compute.device == plan::Device::kCuda;
}

/// No kernel is measured against another: libtorch's on GPUs leave no choice.
Status add_gpus(plan::PlanInputs& inputs, const std::optional<StartedRanks>& started) {
  HANJI_ASSIGN_OR_RETURN(inputs.gpus, count_gpus(started));
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kFlash;
  inputs.kernels.precision = inputs.config.compute.dtype;
  inputs.kernels.why = "libtorch's own kernels, on GPUs";
  return {};
}

}  // namespace

Result<std::optional<plan::ModelFacts>> facts_of_model(const plan::Config& config,
                                                       const Workload& workload) {
  if (!plan::needs_counting(config)) return std::optional<plan::ModelFacts>();
  if (workload.make) return std::optional(count_facts(config, workload));
  HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
  const base::Json key = model_key(config, workload.dataset, machine);
  const auto count = [&](const auto&) -> Result<plan::ModelFacts> {
    if (plan::data_kind(config) != plan::DataKind::kPairs) return count_facts(config, workload);
    plan::Config sized = config;
    sized.model = plan::resolved(config.model);
    return count_pair_facts(std::move(sized), workload.dataset.num_ids);
  };
  const auto facts = measured<plan::ModelFacts>(
      "facts", key, [](const std::string& text) { return plan::facts_from_json(text); }, count);
  if (!facts.ok()) return facts.status();
  return std::optional<plan::ModelFacts>(facts->value);
}

Result<plan::CountedModel> count_preset(plan::Config config) {
  HANJI_ASSIGN_OR_RETURN(Dataset dataset, open_dataset(config));
  const Workload workload{std::move(dataset)};
  plan::CountedModel counted{.precision = config.compute.dtype};
  for (const bool recompute : {false, true}) {
    config.compute.recompute = recompute;
    HANJI_ASSIGN_OR_RETURN(auto facts, facts_of_model(config, workload));
    (recompute ? counted.recomputed : counted.facts) = *std::move(facts);
  }
  return counted;
}

std::vector<plan::PairRanks> count_pairs(const plan::Config& config, int ranks) {
  const int64_t classes = plan::has_sequences(config.data.pairs) ? 2 : 16;
  const auto count = [&](int degree, plan::TriangleWay way) {
    plan::Config one = config;
    one.mesh.axial = degree;
    one.parallel.triangle = way;
    return count_pair_facts(one, classes);
  };
  std::vector<plan::PairRanks> rows;
  for (int degree = 1; rows.empty() || rows.back().ranks < ranks;
       degree = std::min(2 * degree, ranks)) {
    rows.push_back({degree, count(degree, plan::TriangleWay::kChannels),
                    count(degree, plan::TriangleWay::kGather)});
  }
  return rows;
}

Result<plan::GpuFacts> count_gpus(const std::optional<StartedRanks>& started) {
  const compute::Gpus gpus = compute::find_gpus();
  HANJI_RETURN_IF_ERROR(compute::check_gpus(gpus));
  const size_t hosts = started ? std::max<size_t>(1, started->ranks_per_host.size()) : 1;
  return plan::GpuFacts{.count = gpus.count * static_cast<int>(hosts),
                        .free_bytes = gpus.free_bytes};
}

namespace {

/// What the times of a job on this machine depend on, wherever they are taken.
base::Json times_key(const plan::PlanInputs& inputs, const plan::Plan& draft,
                     const Dataset& dataset) {
  const plan::DataConfig& data = inputs.config.data;
  base::Json key = model_key(inputs.config, dataset, inputs.machine);
  // How long a sample takes to read is a matter of the place, and of what a file has there now.
  key["data"] = {data.text, data.tokens, data.files,
                 data.files.empty() ? 0 : dataset.samples->checksum()};
  key["kernels"] = {name_of(inputs.kernels.gemm), name_of(inputs.kernels.attention),
                    name_of(inputs.kernels.weight_gradient)};
  key["threads"] = draft.threads;
  key["micro_batch"] = draft.micro_batch;
  return key;
}

}  // namespace

Status add_times(plan::PlanInputs& inputs, const plan::Plan& draft, const Workload& workload,
                 int busy_ranks, const TimingProgress& on_timing) {
  plan::Plan with_kernels = draft;
  with_kernels.kernels = inputs.kernels;
  const auto time = [&] {
    const base::AtEnd end([&] {
      if (on_timing) on_timing(1, 1);
    });
    return time_operations({with_kernels, workload, busy_ranks, on_timing});
  };
  if (workload.make) {
    inputs.times = time();
    return {};
  }
  base::Json key = times_key(inputs, draft, workload.dataset);
  key["ranks"] = busy_ranks;
  HANJI_ASSIGN_OR_RETURN(
      auto times,
      measured<plan::OperationTimes>(
          "operations", key, plan::operation_times_from_json,
          [&](const auto&) -> Result<plan::OperationTimes> { return time(); }, probe_seconds));
  take(std::move(times), inputs.times, inputs);
  return {};
}

Status add_gpu_times(plan::PlanInputs& inputs, const plan::Plan& draft, const Workload& workload,
                     const std::optional<StartedRanks>& started) {
  const bool is_rank = workload.make || (started && started->are_running);
  const GpuTimer timer = is_rank ? GpuTimer::kThisRank : GpuTimer::kProgram;
  const auto time = [&] { return time_on_gpu({draft, workload}, timer); };
  const auto measure = [&]() -> Result<Marked<plan::OperationTimes>> {
    if (workload.make) {
      HANJI_ASSIGN_OR_RETURN(plan::OperationTimes times, time());
      return Marked<plan::OperationTimes>{std::move(times)};
    }
    base::Json key = times_key(inputs, draft, workload.dataset);
    key["gpu"] = compute::gpu_name();
    key["bits"] = name_of(inputs.config.train.bits);
    return measured<plan::OperationTimes>("gpu_operations", key, plan::operation_times_from_json,
                                          [&](const auto&) { return time(); });
  };
  auto times = measure();
  if (!times.ok()) {
    // A run needs no prediction, and memory that timing could not get may be enough for its ranks.
    base::Log(STDERR_FILENO, "hanji")
        .warn("no time is predicted, as timing on the GPU failed: " + times.status().message());
    return {};
  }
  take(*std::move(times), inputs.times, inputs);
  return {};
}

Status decide_moves(plan::PlanInputs& inputs, const Workload& workload, plan::Plan& draft) {
  draft.rates = inputs.rates;
  plan::ParallelConfig& parallel = inputs.config.parallel;
  bool as_counted = true;
  if (const auto compared = plan::compare_moves(draft);
      compared && parallel.moves == plan::Moves::kAuto) {
    parallel.moves = compared->cheaper();
    as_counted = parallel.moves == plan::Moves::kActivations;
  }
  if (const auto ways = plan::compare_triangles(draft);
      ways && parallel.triangle == plan::TriangleWay::kAuto) {
    parallel.triangle = plan::cheapest_triangle(draft, *ways, inputs.machine.available_bytes);
    as_counted = parallel.triangle == plan::TriangleWay::kChannels;
  }
  if (as_counted) return {};
  HANJI_ASSIGN_OR_RETURN(inputs.model, facts_of_model(inputs.config, workload));
  HANJI_ASSIGN_OR_RETURN(draft, plan::make_plan(inputs));
  return {};
}

Status decide_context(plan::PlanInputs& inputs, const Workload& workload, plan::Plan& draft) {
  if (!plan::leaves_context_open(inputs.config)) return {};
  draft.rates = inputs.rates;
  plan::ContextWay& way = inputs.config.parallel.context;
  way = plan::compare_context(draft).front().way;
  if (way == plan::context_way(draft.config)) return {};
  HANJI_ASSIGN_OR_RETURN(inputs.model, facts_of_model(inputs.config, workload));
  HANJI_ASSIGN_OR_RETURN(draft, plan::make_plan(inputs));
  return {};
}

Result<cost::Rates> measure_rates(const topology::Machine& machine, int ranks) {
  return cost::measure_rates({.ranks = ranks,
                              .usable_cores = machine.usable_cores,
                              .cache_bytes = last_cache_bytes(machine),
                              .rank_cpus = topology::cpus_per_rank(machine, ranks)});
}

Result<plan::Plan> prepare(const plan::Config& config) {
  HANJI_ASSIGN_OR_RETURN(Dataset dataset, open_dataset(config));
  return prepare(config, Workload{std::move(dataset)});
}

namespace {

/// Where medium changes nothing, the choice is that of highest, of which it says so.
Result<Marked<base::KernelChoice>> measured_kernels(const plan::Plan& draft, plan::Config asked,
                                                    const topology::Machine& machine) {
  const auto measure_now = [&](auto before) {
    return measure_kernels(draft, asked, std::move(before));
  };
  const auto choose = [&] {
    return measured<base::KernelChoice>(kKernelChoices, kernels_key(draft, asked, machine),
                                        plan::kernels_from_json, measure_now);
  };
  HANJI_ASSIGN_OR_RETURN(auto kernels, choose());
  const bool as_highest = kernels.value.products == base::Products::kHighest;
  if (asked.compute.products == base::Products::kHighest || !as_highest) return kernels;
  asked.compute.products = base::Products::kHighest;
  HANJI_ASSIGN_OR_RETURN(auto highest, choose());
  highest.value.products_why = std::move(kernels.value.products_why);
  highest.load = std::max(highest.load, kernels.load);
  return highest;
}

/// Adds the kernels that are measured, once per machine; gives the draft that they were measured
/// for. It decides ranks and shapes, which is what there is to measure.
Result<plan::Plan> add_kernels(plan::PlanInputs& inputs) {
  const plan::Config& config = inputs.config;
  const plan::ComputeConfig& compute = config.compute;
  inputs.kernels.precision = compute.dtype;
  if (compute.gemm != plan::Gemm::kAuto) inputs.kernels.gemm = compute.gemm;
  if (compute.attention != plan::Attention::kAuto) inputs.kernels.attention = compute.attention;
  HANJI_ASSIGN_OR_RETURN(plan::Plan draft, plan::make_plan(inputs));
  HANJI_ASSIGN_OR_RETURN(auto kernels, measured_kernels(draft, config, inputs.machine));
  take(std::move(kernels), inputs.kernels, inputs);
  return draft;
}

/// What ranks have that are there already.
void take_started(const StartedRanks& started, plan::PlanInputs& inputs) {
  inputs.ranks_per_host = started.ranks_per_host;
  inputs.link = started.link;
  inputs.are_started = started.are_running;
  if (started.ranks_per_host.empty()) {
    // The plan takes all ranks for those of this machine, and here are so many of them.
    inputs.machine.available_bytes *= started.ranks;
    inputs.machine.available_bytes /= started.local_ranks;
  }
  int64_t& threads = inputs.config.compute.threads;
  const bool free = inputs.config.train.bits != plan::Bits::kStable;
  if (threads == plan::kAuto && free) threads = started.threads;
}

/// This host with the CPUs of all its ranks, also where a launcher has pinned this one to its own.
Result<topology::Machine> read_host(int ranks) {
  Result<topology::Machine> machine = topology::read_machine();
  if (!machine.ok() || machine->usable_cores >= ranks) return machine;
  std::jthread([&] {  // the mask of a thread is its own
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof all);
    ::sched_setaffinity(0, sizeof all, &all);
    machine = topology::read_machine();
  })
      .join();
  return machine;
}

/// Adds rates that are measured once per machine, and costs where they were fitted. `hanji doctor` says where
/// none were.
Status add_rates(plan::PlanInputs& inputs, const topology::Machine& host, int ranks) {
  HANJI_ASSIGN_OR_RETURN(
      auto rates, measured<cost::Rates>("rates", rates_key(host, ranks), cost::rates_from_json,
                                        [&](const auto&) { return measure_rates(host, ranks); }));
  const auto folder = base::cache_folder();
  if (folder.ok()) cost::use_fitted(rates.value, *folder, host, ranks);
  take(std::move(rates), inputs.rates, inputs);
  return {};
}

/// Adds what decides how threads wait. A rank of one thread waits for none, so nobody looks.
void add_waits(plan::PlanInputs& inputs, const plan::Plan& draft) {
  inputs.wait_setting = topology::wait_setting();
  const bool is_open = draft.waits.policy == topology::WaitPolicy::kRuntime && draft.threads > 1;
  if (is_open && inputs.wait_setting.empty()) {
    inputs.cpus_of_others = topology::look_at_others(inputs.machine);
  }
}

}  // namespace

Result<plan::Plan> prepare(const plan::Config& config, const Workload& workload,
                           const std::optional<StartedRanks>& started,
                           const TimingProgress& on_timing) {
  const SkipLog::Silence while_timing(workload.dataset.skips.get());
  plan::PlanInputs inputs{.config = with_absolute_paths(config), .data = workload.dataset.facts()};
  HANJI_ASSIGN_OR_RETURN(inputs.machine, topology::read_machine());
  HANJI_ASSIGN_OR_RETURN(inputs.process, process_of_a_rank());
  if (!started) HANJI_RETURN_IF_ERROR(plan::check_processes(inputs));
  HANJI_ASSIGN_OR_RETURN(inputs.model, facts_of_model(inputs.config, workload));
  const base::AtEnd tidy(compute::return_freed_memory);  // what measuring has taken
  if (started) take_started(*started, inputs);
  if (on_gpus(inputs)) {
    HANJI_RETURN_IF_ERROR(add_gpus(inputs, started));
    HANJI_ASSIGN_OR_RETURN(const plan::Plan draft, plan::make_plan(inputs));
    HANJI_RETURN_IF_ERROR(add_gpu_times(inputs, draft, workload, started));
    add_waits(inputs, draft);
  } else {
    HANJI_ASSIGN_OR_RETURN(plan::Plan draft, add_kernels(inputs));
    const int ranks = started ? started->local_ranks : draft.ranks;
    topology::Machine host = inputs.machine;
    if (started) {
      HANJI_ASSIGN_OR_RETURN(host, read_host(ranks));
    }
    HANJI_RETURN_IF_ERROR(add_rates(inputs, host, ranks));
    HANJI_RETURN_IF_ERROR(decide_moves(inputs, workload, draft));
    HANJI_RETURN_IF_ERROR(decide_context(inputs, workload, draft));
    HANJI_RETURN_IF_ERROR(add_times(inputs, draft, workload, ranks, on_timing));
    add_waits(inputs, draft);
  }
  HANJI_ASSIGN_OR_RETURN(plan::Plan plan, plan::make_plan(inputs));
  if (started) plan.cpus.assign(plan.ranks, {});  // the launcher has decided
  return plan;
}

Result<int64_t> ranks_of_job(const plan::Config& config, int hosts) {
  if (config.run.ranks != plan::kAuto) return config.run.ranks;
  if (!config.train.split.empty()) return std::ssize(config.train.split);
  int places = 0;
  if (config.compute.device == plan::Device::kCuda) {
    HANJI_ASSIGN_OR_RETURN(const plan::GpuFacts gpus, count_gpus());
    places = gpus.count;
  } else {
    HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
    places = machine.usable_cores;
  }
  const int64_t num_grains = config.train.global_batch / config.train.grain;
  return std::min(int64_t{hosts} * std::min(places, base::kMaxRanksPerHost), num_grains);
}

Result<plan::Plan> prepare_on_hosts(plan::Config config, const Workload& workload, int hosts,
                                    const TimingProgress& on_timing) {
  HANJI_ASSIGN_OR_RETURN(const topology::Machine machine, topology::read_machine());
  int64_t& ranks = config.run.ranks;
  HANJI_ASSIGN_OR_RETURN(ranks, ranks_of_job(config, hosts));
  if (ranks < hosts) {
    return base::invalid_argument(
        fmt::format("{} on {}: every host needs one; set run.ranks = {} or more, and "
                    "train.global_batch to as many grains",
                    base::counted(ranks, "rank"), base::counted(hosts, "host"), hosts));
  }
  StartedRanks started{.ranks = static_cast<int>(ranks), .are_running = false};
  started.ranks_per_host = plan::spread_ranks(started.ranks, hosts);
  started.local_ranks = started.ranks_per_host[0];
  started.threads = std::max(1, machine.usable_cores / started.local_ranks);
  return prepare(config, workload, started, on_timing);
}

}  // namespace hanji::train
