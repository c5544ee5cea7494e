#include "hanji/plan/internal/check_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/train_limits.h"

namespace hanji::plan {
namespace {

void check_data_size(const PlanInputs& inputs, std::vector<Contradiction>& found) {
  const Config& config = inputs.config;
  if (config.model.vocabulary != kAuto && config.model.vocabulary < inputs.data.vocabulary) {
    found.push_back(
        {{"model.vocabulary"},
         fmt::format("model.vocabulary is {}, but the data has {}", config.model.vocabulary,
                     base::counted(inputs.data.vocabulary, "token")),
         "set model.vocabulary = \"auto\""});
  }
  if (inputs.data.num_train_samples > 0) return;
  if (data_kind(config) == DataKind::kOwn) {
    found.push_back(
        {{"model.preset"}, "the program's own source has no training sample", "bring more data"});
  } else {
    found.push_back({{"model.block"},
                     fmt::format("the data has no training sample of {}",
                                 base::counted(resolved(config.model).block + 1, "token")),
                     "bring more data, or set a smaller model.block"});
  }
}

void check_measured_kernels(const PlanInputs& inputs, std::vector<Contradiction>& found) {
  const ComputeConfig& asked = inputs.config.compute;
  const KernelChoice& kernels = inputs.kernels;
  const bool other_gemm = asked.gemm != Gemm::kAuto && asked.gemm != kernels.gemm;
  const bool other_attention =
      asked.attention != Attention::kAuto && asked.attention != kernels.attention;
  if (other_gemm || other_attention || asked.dtype != kernels.precision) {
    found.push_back(
        {{"compute.gemm"},
         fmt::format(
             "the measured kernels are gemm {}, attention {}, {}, but the configuration asks "
             "for {}, {}, {}",
             name_of(kernels.gemm), name_of(kernels.attention), name_of(kernels.precision),
             name_of(asked.gemm), name_of(asked.attention), name_of(asked.dtype)),
         "measure again"});
  }
  if (asked.products == Products::kHighest && kernels.products == Products::kMedium) {
    found.push_back({{"compute.products"},
                     fmt::format("the measured products are {}, but the configuration asks for {}",
                                 name_of(kernels.products), name_of(asked.products)),
                     "measure again"});
  }
  const bool slower = kernels.gemm_flops_per_second < kernels.float32_flops_per_second;
  if (slower && !asked.slow_dtype) {
    found.push_back(
        {{"compute.dtype"},
         fmt::format("compute.dtype = {} multiplies at {:.3g} GF/s here and float32 at {:.3g} GF/s",
                     name_of(asked.dtype), kernels.gemm_flops_per_second / 1e9,
                     kernels.float32_flops_per_second / 1e9),
         "set compute.dtype = \"float32\", or compute.slow_dtype = true to insist"});
  }
}

void check_gpu_count(const PlanInputs& inputs, std::vector<Contradiction>& found) {
  const Config& config = inputs.config;
  const int gpus = inputs.gpus.count;
  const int64_t asked = config.train.split.empty() ? std::max<int64_t>(1, config.run.ranks)
                                                   : std::ssize(config.train.split) *
                                                         ranks_per_data_coordinate(config.mesh);
  if (config.compute.device != Device::kCuda || asked <= gpus) return;
  found.push_back(
      {{"compute.device"},
       fmt::format("compute.device = cuda gives each rank a GPU of its own, but {} rank{} and {} "
                   "visible GPU{} are there",
                   asked, asked == 1 ? "" : "s", gpus, gpus == 1 ? "" : "s"),
       gpus == 0 ? "set compute.device = \"cpu\"" : fmt::format("set run.ranks = {}", gpus)});
}

Status check_ranks_per_host(const Plan& plan) {
  const std::vector<int> one_host = {plan.ranks};
  const std::vector<int>& hosts = plan.hosts.ranks.empty() ? one_host : plan.hosts.ranks;
  const auto full = std::ranges::max_element(hosts);
  if (*full <= base::kMaxRanksPerHost) return {};
  const int needed = (plan.ranks + base::kMaxRanksPerHost - 1) / base::kMaxRanksPerHost;
  return base::invalid_argument(fmt::format(
      "host {} has {} of {}, but at most {} run on one host; set run.ranks = {}, or start "
      "them on {} (hanji run --nnodes {}; hanji plan --hosts {})",
      full - hosts.begin(), *full, base::counted(plan.ranks, "rank"), base::kMaxRanksPerHost,
      std::ssize(hosts) * base::kMaxRanksPerHost, base::counted(needed, "host"), needed, needed));
}

/// Of `group` ranks next to each other, which in a stage of a pipeline share one host's memory: those of an
/// axis and of all inside it.
Status group_on_one_host(const Plan& plan, std::string_view axis, int group) {
  const std::vector<int>& hosts = plan.hosts.ranks;
  const auto cut = std::ranges::find_if(hosts, [&](int ranks) { return ranks % group != 0; });
  if (cut == hosts.end()) return {};
  const int degree = plan.mesh.degree(axis);
  const int64_t room = ranks_that_divide(hosts) / std::max(1, group / degree);
  return base::invalid_argument(fmt::format(
      "mesh.{} is {}, but host {} has {} rank{}, and in a stage of mesh.pp the ranks of a group "
      "share "
      "one host's memory; set mesh.{} = {}, remove mesh.pp, or start other ranks on each host",
      axis, degree, cut - hosts.begin(), *cut, *cut == 1 ? "" : "s", axis,
      layout::nearest_divisors(std::max<int64_t>(1, room), degree).front()));
}

/// Of axes along which layers call, on several hosts. What stages pass on is priced from host to host.
std::vector<Status> check_axes(const Plan& plan) {
  std::vector<Status> found;
  if (plan.mesh.degree("pp") == 1) return found;
  int inner = 1;
  for (const char* axis : {"axial", "tp", "cp"}) {
    const int degree = plan.mesh.degree(axis);
    inner *= degree;
    if (degree > 1) found.push_back(group_on_one_host(plan, axis, inner));
  }
  return found;
}

/// Of strategies whose ranks share states in memory.
Status check_states(const Plan& plan) {
  const std::vector<int>& hosts = plan.hosts.ranks;
  const Sharding data = plan.config.parallel.data;
  const Engine engine = engine_of(plan.config);
  // Of axes inside dp.
  const bool shards = plan.mesh.degree("fsdp") > 1;
  const int group = shards ? plan.ranks / (plan.mesh.degree("pp") * plan.mesh.degree("dp")) : 1;
  const TrainSetup setup{.data = data,
                         .device = plan.config.compute.device,
                         .engine = engine,
                         .hosts = hosts,
                         .group_ranks = group,
                         .stages = plan.mesh.degree("pp")};
  if (has_limit(setup, TrainLimit::kHosts)) {
    return base::unsupported(fmt::format(
        "parallel.data = {} keeps parameters once in the memory of a host, but the ranks are on {}"
        "; set parallel.data = \"zero1\", which shards the optimizer over the ranks of all "
        "hosts, or start all ranks on one host",
        name_of(data), base::counted(hosts.size(), "host")));
  }
  if (has_limit(setup, TrainLimit::kEngine)) {
    return base::unsupported(
        fmt::format("parallel.data = {} needs ranks that share memory, which on one host is "
                    "comm.engine = shm and not {}; leave comm.engine out",
                    name_of(data), name_of(engine)));
  }
  return has_limit(setup, TrainLimit::kGroups) ? group_on_one_host(plan, "fsdp", group) : Status();
}

}  // namespace

Status check_inputs(const PlanInputs& inputs) {
  Config config = inputs.config;
  config.model = with_vocabulary(config.model, inputs.data.vocabulary);
  std::vector<Contradiction> found = find_contradictions(config, inputs.cut_axes);
  check_data_size(inputs, found);
  check_measured_kernels(inputs, found);
  check_gpu_count(inputs, found);
  std::vector<ConfigMistake> mistakes;
  for (const Contradiction& one : found) {
    mistakes.push_back({{"config"}, std::string(one.keys.front()), one.message, one.suggestion});
  }
  return to_status(mistakes);
}

Status check_hosts(const Plan& plan) {
  const std::vector<int>& hosts = plan.hosts.ranks;
  const int placed = std::reduce(hosts.begin(), hosts.end());
  if (!hosts.empty() && placed != plan.ranks) {
    return base::invalid_argument(fmt::format(
        "the hosts have {} together, but the plan has {}; set run.ranks = {}, or leave it "
        "out",
        base::counted(placed, "rank"), plan.ranks, placed));
  }
  HANJI_RETURN_IF_ERROR(check_ranks_per_host(plan));
  std::vector<Status> found;
  if (plan.hosts.several()) found = check_axes(plan);
  found.push_back(check_states(plan));
  std::erase_if(found, [](const Status& one) { return one.ok(); });
  if (found.empty()) return {};
  std::string all;
  for (const Status& one : found) all += (all.empty() ? "" : "\n") + std::string(one.message());
  return {found.front().code(), all};
}

int ranks_that_divide(const std::vector<int>& hosts) {
  return std::reduce(hosts.begin(), hosts.end(), 0, [](int a, int b) { return std::gcd(a, b); });
}

}  // namespace hanji::plan
