#include "hanji/cli/doctor/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/plan/nccl_variables.h"

namespace hanji::cli {
namespace {

/// What a variable does. The longest matching prefix speaks.
struct Meaning {
  std::string_view prefix;
  std::string_view words;
  Verdict verdict = Verdict::kGood;
};

constexpr std::string_view kOtherBits = "changes kernels: other bits than on a host without it";
constexpr std::string_view kOtherThreads =
    "may change the number of threads within a run, and with it the bits; unset it";

constexpr std::array kMeanings = {
    Meaning{"OMP_NUM_THREADS", "threads of programs under hanji run; hanji train: compute.threads"},
    Meaning{"OMP_PROC_BIND", "pins OpenMP threads within the cores of the rank"},
    Meaning{"OMP_PLACES", "pins OpenMP threads to places of its own: they may share a core",
            Verdict::kNote},
    Meaning{"OMP_DYNAMIC", kOtherThreads, Verdict::kNote},
    Meaning{"OMP_THREAD_LIMIT", "most threads of OpenMP in one process"},
    Meaning{"OMP_WAIT_POLICY", "whether waiting OpenMP threads spin or sleep; left as it is"},
    Meaning{"OMP_", "of the OpenMP runtime"},
    Meaning{"GOMP_CPU_AFFINITY", "pins threads to the same cores on every rank", Verdict::kNote},
    Meaning{"GOMP_SPINCOUNT", "polls of GNU's OpenMP before a thread sleeps; left as it is"},
    Meaning{"GOMP_", "of GNU's OpenMP runtime"},
    Meaning{"KMP_AFFINITY", "of Intel's OpenMP runtime: may undo the pinning of ranks",
            Verdict::kNote},
    Meaning{"KMP_BLOCKTIME", "milliseconds before an idle thread sleeps; left as it is"},
    Meaning{"KMP_", "of Intel's OpenMP runtime"},
    Meaning{"MKL_NUM_THREADS", "threads of MKL's products: stronger than OMP_NUM_THREADS"},
    Meaning{"MKL_DYNAMIC", kOtherThreads, Verdict::kNote},
    Meaning{"MKL_CBWR", kOtherBits, Verdict::kNote},
    Meaning{"MKL_ENABLE_INSTRUCTIONS", kOtherBits, Verdict::kNote},
    Meaning{"MKL_DEBUG_CPU_TYPE", kOtherBits, Verdict::kNote},
    Meaning{"MKL_", "of MKL, which may multiply matrices"},
    Meaning{"ONEDNN_MAX_CPU_ISA", kOtherBits, Verdict::kNote},
    Meaning{"DNNL_MAX_CPU_ISA", kOtherBits, Verdict::kNote},
    Meaning{"ONEDNN_", "of oneDNN, which may multiply matrices"},
    Meaning{"DNNL_", "of oneDNN, which may multiply matrices"},
    Meaning{"ATEN_CPU_CAPABILITY", kOtherBits, Verdict::kNote},
    Meaning{"TORCH_NCCL_", "of PyTorch's NCCL backend, which nothing here uses", Verdict::kNote},
    Meaning{"CUDA_VISIBLE_DEVICES", "GPUs that hanji train --device cuda takes, in this order"},
    Meaning{"GLOO_SOCKET_IFNAME", "hanji's Gloo engine uses the loopback whatever it says",
            Verdict::kNote},
    Meaning{"GLOO_", "of Gloo, with comm.engine = gloo"},
    Meaning{"OMPI_MCA_", "of Open MPI: a parameter of mpirun and its ranks"},
    Meaning{"TORCH_DISTRIBUTED_DEBUG",
            "checks of PyTorch's own process groups; hanji checks always"},
    Meaning{"HANJI_SIMD", kOtherBits, Verdict::kNote},
    Meaning{"HANJI_CACHE_DIR", "where measurements of this machine are kept"},
    Meaning{"HANJI_ENDPOINTS", "this shell was started as a rank of hanji run", Verdict::kNote},
    Meaning{"LD_PRELOAD", "puts a library before ours, as allocators do", Verdict::kNote},
    Meaning{"MALLOC_", "of glibc's allocator"},
};

/// Known ones that change something for the worse, or the bits; the others do as they are told.
constexpr std::array<std::string_view, 5> kNotedOfNccl = {
    "NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE"};

/// Those that hanji does not work with, which [comm.nccl] therefore refuses.
constexpr std::array kForeignOfNccl = {
    Meaning{"NCCL_COMM_BLOCKING",
            "0 lets NCCL return before it has done what hanji asked; unset it", Verdict::kNote},
    Meaning{"NCCL_COMM_ID", "where NCCL's ranks meet without hanji; unset it", Verdict::kNote},
};

std::string nearest_nccl_variable(std::string_view name) {
  std::vector<std::string_view> names;
  for (const plan::NcclVariable& one : plan::nccl_variables()) names.push_back(one.name);
  const auto meant = base::nearest(name, names);
  return meant ? fmt::format("; did you mean {}?", *meant) : "";
}

const Meaning* meaning_of(std::string_view name) {
  const Meaning* best = nullptr;
  for (const Meaning& one : kMeanings) {
    const bool longer = best == nullptr || one.prefix.size() > best->prefix.size();
    if (name.starts_with(one.prefix) && longer) best = &one;
  }
  return best;
}

/// A value on one line, whatever its bytes.
std::string shown(std::string_view value) {
  return fmt::format("= {}", base::json_quote(value.substr(0, 60)));
}

/// What a variable of NCCL does.
Finding judge_nccl(const base::NamedValue& one) {
  Finding found{"environment", one.name, shown(one.value), Verdict::kNote};
  const auto foreign = std::ranges::find(kForeignOfNccl, one.name, &Meaning::prefix);
  if (foreign != kForeignOfNccl.end()) {
    found.advice = foreign->words;
  } else if (const plan::NcclVariable* variable = plan::find_nccl_variable(one.name)) {
    const bool noted = std::ranges::find(kNotedOfNccl, one.name) != kNotedOfNccl.end();
    found.verdict = noted ? Verdict::kNote : Verdict::kGood;
    found.advice = variable->doc;
  } else {
    found.advice = "no variable of NCCL that hanji knows" + nearest_nccl_variable(one.name);
  }
  return found;
}

class Judge {
 public:
  Judge(std::span<const base::NamedValue> environment, int cores)
      : environment_(environment), cores_(cores) {}

  Findings judge() {
    for (const base::NamedValue& one : environment_) show(one);
    std::ranges::sort(found_, {}, &Finding::name);
    check_count("OMP_NUM_THREADS");
    check_count("MKL_NUM_THREADS");
    check_two_counts();
    check_thread_limit();
    check_affinities();
    check_interfaces();
    report_sums_in_switches();
    check_unknown_hanji();
    if (found_.empty()) add("none", "no variable that changes behaviour is set");
    return std::move(found_);
  }

 private:
  Finding& add(std::string name, std::string value) {
    return found_.emplace_back(Finding{"environment", std::move(name), std::move(value)});
  }

  void show(const base::NamedValue& one) {
    if (one.name.starts_with("NCCL_")) {
      found_.push_back(judge_nccl(one));
      return;
    }
    if (const Meaning* meaning = meaning_of(one.name)) {
      Finding& finding = add(one.name, shown(one.value));
      finding.verdict = meaning->verdict;
      finding.advice = meaning->words;
    }
  }

  const std::string* value_of(std::string_view name) const {
    const auto found = std::ranges::find(environment_, name, &base::NamedValue::name);
    return found == environment_.end() ? nullptr : &found->value;
  }

  /// A whole number; of OpenMP's list for nested teams ("4,2") the first.
  std::optional<int> number_of(std::string_view name) const {
    const std::string* text = value_of(name);
    if (text == nullptr) return {};
    const auto end = text->data() + std::min(text->find(','), text->size());
    int value = 0;
    const auto parsed = std::from_chars(text->data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end) return {};
    return value;
  }

  void check_count(std::string_view name) {
    if (value_of(name) == nullptr) return;
    const auto threads = number_of(name);
    if (!threads || *threads < 1) {
      Finding& bad = add(fmt::format("{} is no count", name), shown(*value_of(name)));
      bad.verdict = Verdict::kBroken;
      bad.advice = fmt::format("unset {}, or give it a whole number from 1", name);
    } else if (*threads > cores_) {
      Finding& many =
          add(fmt::format("{} above cores", name),
              fmt::format("{} on {} usable cores", base::counted(*threads, "thread"), cores_));
      many.verdict = Verdict::kNote;
      many.advice = fmt::format("more threads than cores; unset {}", name);
    }
  }

  void check_two_counts() {
    const auto omp = number_of("OMP_NUM_THREADS"), mkl = number_of("MKL_NUM_THREADS");
    if (!omp || !mkl || *omp == *mkl) return;
    add_conflict(fmt::format("OMP_NUM_THREADS {}, MKL_NUM_THREADS {}", *omp, *mkl),
                 "products and all else use different numbers of threads; unset one");
  }

  void add_conflict(std::string value, std::string advice) {
    Finding& conflict = add("conflict", std::move(value));
    conflict.verdict = Verdict::kNote;
    conflict.advice = std::move(advice);
  }

  void check_thread_limit() {
    const auto threads = number_of("OMP_NUM_THREADS"), most = number_of("OMP_THREAD_LIMIT");
    if (!threads || !most || *threads <= *most) return;
    add_conflict(fmt::format("OMP_NUM_THREADS {}, OMP_THREAD_LIMIT {}", *threads, *most),
                 "the limit wins; unset one");
  }

  /// Each of them pins threads; of two, one is ignored, and which depends on the runtime.
  void check_affinities() {
    std::vector<std::string_view> set;
    for (const auto name : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"}) {
      if (value_of(name) != nullptr) set.push_back(name);
    }
    if (set.size() < 2) return;
    add_conflict(fmt::format("{}", fmt::join(set, ", ")),
                 "each pins threads and one is ignored; unset all, as ranks are pinned already");
  }

  /// What the variables ask for. Whether NCCL uses it depends on GPUs and switches, which are not asked.
  void report_sums_in_switches() {
    const bool nccl = std::ranges::any_of(
        environment_, [](const auto& one) { return one.name.starts_with("NCCL_"); });
    if (!nccl) return;
    const auto nvls = number_of("NCCL_NVLS_ENABLE").value_or(2);
    add("NVLS of NCCL", nvls == 0   ? "off by NCCL_NVLS_ENABLE"
                        : nvls == 1 ? "requested by NCCL_NVLS_ENABLE; the GPUs were not asked"
                                    : "left to NCCL; the GPUs were not asked");
    add("SHARP of NCCL", number_of("NCCL_COLLNET_ENABLE").value_or(0) == 1
                             ? "requested by NCCL_COLLNET_ENABLE; the switches were not asked"
                             : "off, which is NCCL's default");
  }

  void check_interfaces() {
    const auto *nccl = value_of("NCCL_SOCKET_IFNAME"), *gloo = value_of("GLOO_SOCKET_IFNAME");
    if (nccl == nullptr || gloo == nullptr || *nccl == *gloo) return;
    add_conflict(fmt::format("NCCL_SOCKET_IFNAME {}, GLOO_SOCKET_IFNAME {}", shown(*nccl).substr(2),
                             shown(*gloo).substr(2)),
                 "a program of both would meet on two networks; name one interface");
  }

  void check_unknown_hanji() {
    for (const base::NamedValue& one : environment_) {
      const bool known = std::ranges::any_of(
          base::variables(), [&](const auto& spec) { return spec.name == one.name; });
      if (!one.name.starts_with("HANJI_") || known) continue;
      // The build's own door: the command does not read it, ./dev and CMake do.
      if (one.name == "HANJI_TORCH" || one.name == "HANJI_BINARY") continue;
      Finding& unknown = add(one.name, shown(one.value));
      unknown.verdict = Verdict::kNote;
      unknown.advice = "hanji reads no such variable; keys of a job are set with --set";
    }
  }

  std::span<const base::NamedValue> environment_;
  int cores_;
  Findings found_;
};

}  // namespace

Findings judge_environment(std::span<const base::NamedValue> environment, int cores) {
  return Judge(environment, cores).judge();
}

}  // namespace hanji::cli
