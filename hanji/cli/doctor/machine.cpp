#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <algorithm>

#include "hanji/base/cache_folder.h"
#include "hanji/base/clock.h"
#include "hanji/base/json.h"
#include "hanji/base/simd.h"
#include "hanji/base/units.h"
#include "hanji/base/version.h"
#include "hanji/cli/doctor/gather.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/compute/measure.h"
#include "hanji/cost/measure.h"
#include "hanji/cost/stored.h"
#include "hanji/shm/numa.h"
#include "hanji/topology/cpu_load.h"
#include "hanji/train/measured_once.h"
#include "hanji/train/prepare.h"

namespace hanji::cli {
namespace {

Finding broken(std::string section, std::string name, const Status& status, std::string advice) {
  return {std::move(section), std::move(name), status.message(), Verdict::kBroken,
          std::move(advice)};
}

std::string describe(const compute::Candidate& one) {
  return fmt::format("{:.1f} GF/s, error {:.1e}{}", one.rate * 1e-9, one.error,
                     one.accepted ? "" : ", too inaccurate to be offered");
}

Finding find_medium_products(compute::MeasureOptions options) {
  options.products = base::Products::kMedium;
  const auto measured = compute::measure(options);
  if (!measured.ok()) {
    return broken("kernels", "compute.products", measured.status(), "leave it at highest");
  }
  return {"kernels", "compute.products", measured->choice.products_why};
}

std::string age_text(int64_t seconds) {
  constexpr int64_t kDay = 24 * 3600;
  if (seconds >= 2 * kDay) return base::counted(seconds / kDay, "day");
  return base::format_seconds(static_cast<double>(std::max<int64_t>(0, seconds)));
}

Finding find_cache_folder() {
  const Status status = base::check_cache_folder();
  if (status.ok()) return {"kernels", "measurements kept in", base::cache_folder()->string()};
  return {"kernels", "measurements kept in", "nowhere: " + status.message(), Verdict::kNote,
          "set HANJI_CACHE_DIR to a folder that you may write, or every command measures again"};
}

// How old the kept choices of kernels are, and whether a busy machine has made them.
Finding find_kernel_choices() {
  Finding finding{"kernels", "kept choices", "none yet: the first run measures"};
  const auto folder = base::cache_folder();
  if (!folder.ok()) return finding;
  const int64_t now = base::wall_ns() / 1'000'000'000;
  int count = 0, again = 0;
  int64_t newest = INT64_MAX, oldest = 0;
  std::string why;
  for (const train::KeptMeasurement& one :
       train::list_measurements(*folder, train::kKernelChoices)) {
    const base::Json key = base::parse_json(one.key).or_throw();
    if (!key.is_object() || key.value("build", "") != base::build_id()) continue;
    ++count;
    newest = std::min(newest, now - one.mark.measured_at);
    oldest = std::max(oldest, now - one.mark.measured_at);
    const std::string reason = train::why_again(one.mark, now);
    if (reason.empty()) continue;
    ++again;
    why = reason;
  }
  if (count == 0) return finding;
  finding.value = count == 1 ? fmt::format("1, measured {} ago", age_text(newest))
                             : fmt::format("{}, measured {} to {} ago", count, age_text(newest),
                                           age_text(oldest));
  if (again == 0) return finding;
  finding.verdict = Verdict::kNote;
  finding.advice = fmt::format(
      "{} will be measured again by the next run on a quiet machine that needs it: {}", again, why);
  return finding;
}

// Whether predictions of collectives rest on costs that were fitted here, and still hold.
Finding find_costs(const topology::Machine& machine, int ranks) {
  Finding finding{"kernels", "costs of collectives", "", Verdict::kNote,
                  fmt::format("run `hanji bench --fit --ranks {}`", ranks)};
  const auto folder = base::cache_folder();
  cost::Rates rates;
  finding.value =
      folder.ok() ? cost::use_fitted(rates, *folder, machine, ranks) : folder.status().message();
  if (!finding.value.empty()) return finding;
  const auto off = comm::disagreement(machine, *rates.fitted);
  if (!off.ok()) return broken("kernels", "costs of collectives", off.status(), "free some memory");
  finding.value =
      fmt::format("fitted for {}, {:.0f} % off now", base::counted(ranks, "rank"), *off * 100);
  const auto stored = cost::load_costs(*folder, ranks);
  const std::string load = topology::describe_load(stored.ok() ? stored->load : 0);
  if (!load.empty()) {
    finding.value += "; " + load;
    return finding;
  }
  if (*off <= cost::kMaxDisagreement) return {"kernels", "costs of collectives", finding.value};
  return finding;
}

}  // namespace

Findings find_versions() {
  struct utsname kernel {};
  ::uname(&kernel);
  return {{"versions", "hanji", base::build_id()},
          {"versions", "libtorch", TORCH_VERSION},
          {"versions", "compiler", fmt::format("GCC-compatible {}", __VERSION__)},
          {"versions", "kernel", fmt::format("{} {}", kernel.sysname, kernel.release)}};
}

Findings find_cores(const topology::Machine& machine) {
  Findings found = {
      {"cores", "processor", machine.cpu_model},
      {"cores", "usable cores",
       fmt::format("{} of {} physical", machine.usable_cores, machine.physical_cores)}};
  if (machine.usable_cores < machine.physical_cores) {
    found.back().verdict = Verdict::kNote;
    found.back().advice =
        machine.cpu_quota > 0
            ? fmt::format("the cgroup grants {} CPUs; raise its quota", machine.cpu_quota)
            : "the affinity mask hides the others; start from a shell without taskset";
  }
  found.push_back({"cores", "NUMA nodes", shm::describe_placement(shm::read_banks())});
  std::string caches;
  for (const topology::Cache& cache : machine.caches) {
    caches += fmt::format("{}L{} {}", caches.empty() ? "" : ", ", cache.level,
                          base::format_bytes(cache.bytes));
  }
  found.push_back({"cores", "caches", caches});
  found.push_back({"cores", "memory",
                   fmt::format("{} free of {}", base::format_bytes(machine.available_bytes),
                               base::format_bytes(machine.memory_bytes))});
  return found;
}

Findings measure_speed(const topology::Machine& machine) {
  const auto simd = base::simd_in_use();
  Findings found = {simd.ok() ? Finding{"kernels", "our own", std::string(base::name_of(*simd))}
                              : broken("kernels", "our own", simd.status(), "unset HANJI_SIMD")};
  compute::MeasureOptions options;
  options.shapes = {.batch = 4, .block = 256, .width = 384, .heads = 6};
  for (const auto precision : {base::Precision::kFloat32, base::Precision::kBFloat16}) {
    options.precision = precision;
    const auto choice = compute::measure(options);
    const std::string type(base::name_of(precision));
    if (!choice.ok()) {
      found.push_back(broken("kernels", type, choice.status(), "use another compute.dtype"));
      continue;
    }
    for (const compute::Candidate& one : choice->candidates) {
      found.push_back({"kernels", fmt::format("{} {}", one.name, type), describe(one)});
    }
    if (precision == base::Precision::kFloat32) found.push_back(find_medium_products(options));
  }
  found.push_back(find_cache_folder());
  found.push_back(find_kernel_choices());
  const int ranks = machine.usable_cores;
  const auto rates = cost::measure_rates({.ranks = ranks,
                                          .usable_cores = machine.usable_cores,
                                          .rank_cpus = topology::cpus_per_rank(machine, ranks)});
  if (!rates.ok()) {
    found.push_back(broken("kernels", "memory", rates.status(), "free some memory"));
    return found;
  }
  found.push_back(
      {"kernels", "memory",
       fmt::format("{:.1f} 10^9 bytes/s, {} together", rates->memory_bytes_per_second * 1e-9,
                   base::counted(ranks, "rank"))});
  found.push_back(
      {"kernels", "meeting of ranks", fmt::format("{:.2f} us", rates->sync_seconds * 1e6)});
  found.push_back(find_costs(machine, ranks));
  return found;
}

}  // namespace hanji::cli
