#include "hanji/base/env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace hanji::base {
namespace {

using enum VariableType;

constexpr std::array kVariables = {
    VariableSpec{"RANK", kInteger, "one process alone", "torchrun: index of this process"},
    VariableSpec{"WORLD_SIZE", kInteger, "one process alone", "torchrun: number of processes"},
    VariableSpec{"LOCAL_RANK", kInteger, "RANK", "torchrun: index within this host"},
    VariableSpec{"LOCAL_WORLD_SIZE", kInteger, "WORLD_SIZE", "torchrun: processes on this host"},
    VariableSpec{"GROUP_RANK", kInteger, "none", "torchrun: index of this host"},
    VariableSpec{"GROUP_WORLD_SIZE", kInteger, "none", "torchrun: number of hosts"},
    VariableSpec{"MASTER_ADDR", kText, "this host", "torchrun: address where ranks meet"},
    VariableSpec{"MASTER_PORT", kInteger, "none", "torchrun: port where ranks meet"},
    VariableSpec{"TORCHELASTIC_RUN_ID", kText, "none", "torchrun: id of the job"},
    VariableSpec{"TORCHELASTIC_RESTART_COUNT", kInteger, "0", "torchrun: restarts so far"},
    VariableSpec{"SLURM_PROCID", kInteger, "none", "srun: index of this process"},
    VariableSpec{"SLURM_LOCALID", kInteger, "none", "srun: index within this host"},
    VariableSpec{"SLURM_NTASKS", kInteger, "none", "Slurm: processes of the job"},
    VariableSpec{"SLURM_STEP_NUM_TASKS", kInteger, "SLURM_NTASKS", "srun: processes of the step"},
    VariableSpec{"SLURM_NTASKS_PER_NODE", kInteger, "none", "Slurm: processes per host"},
    VariableSpec{"SLURM_STEP_TASKS_PER_NODE", kText, "SLURM_NTASKS_PER_NODE",
                 "srun: processes of the step on each host"},
    VariableSpec{"SLURM_NNODES", kInteger, "none", "Slurm: hosts of the job"},
    VariableSpec{"SLURM_STEP_NUM_NODES", kInteger, "SLURM_NNODES", "srun: hosts of the step"},
    VariableSpec{"SLURM_NODEID", kInteger, "none", "Slurm: index of this host"},
    VariableSpec{"SLURM_JOB_NODELIST", kText, "none", "Slurm: names of the job's hosts"},
    VariableSpec{"SLURM_STEP_NODELIST", kText, "SLURM_JOB_NODELIST",
                 "srun: names of the step's hosts"},
    VariableSpec{"SLURM_JOB_ID", kText, "none", "Slurm: id of the job"},
    VariableSpec{"SLURM_STEP_ID", kText, "none", "srun: id of the step"},
    VariableSpec{"SLURM_RESTART_COUNT", kInteger, "0", "Slurm: requeues so far"},
    VariableSpec{"OMPI_COMM_WORLD_RANK", kInteger, "none", "Open MPI: index of this process"},
    VariableSpec{"OMPI_COMM_WORLD_SIZE", kInteger, "none", "Open MPI: number of processes"},
    VariableSpec{"OMPI_COMM_WORLD_LOCAL_RANK", kInteger, "none", "Open MPI: index on this host"},
    VariableSpec{"OMPI_COMM_WORLD_LOCAL_SIZE", kInteger, "none",
                 "Open MPI: processes on this host"},
    VariableSpec{"PMI_RANK", kInteger, "none", "MPICH, Intel MPI: index of this process"},
    VariableSpec{"PMI_SIZE", kInteger, "none", "MPICH, Intel MPI: number of processes"},
    VariableSpec{"MPI_LOCALRANKID", kInteger, "none", "MPICH, Intel MPI: index on this host"},
    VariableSpec{"MPI_LOCALNRANKS", kInteger, "none", "MPICH, Intel MPI: processes on this host"},
    VariableSpec{"PMIX_RANK", kInteger, "none", "PMIx: index of this process"},
    VariableSpec{"PMIX_NAMESPACE", kText, "none", "PMIx: id of the job"},
    VariableSpec{"HANJI_ENDPOINTS", kText, "none", "hanji run: descriptors that a rank inherits"},
    VariableSpec{"HANJI_RENDEZVOUS", kText, "the launcher's", "HOST:PORT where hosts meet"},
    VariableSpec{"HANJI_TOKEN_FILE", kPath, "none", "secret of a run on several hosts, mode 0600"},
    VariableSpec{"HANJI_INTERFACE", kText, "the route's", "interface or address between hosts"},
    VariableSpec{"HANJI_CACHE_DIR", kPath, "XDG_CACHE_HOME/hanji", "measurements kept per machine"},
    VariableSpec{"HANJI_SIMD", kText, "the processor's",
                 "highest vector instructions of hanji's kernels: baseline, avx2, avx512"},
    VariableSpec{"XDG_CACHE_HOME", kPath, "HOME/.cache", "parent of the cache folder"},
    VariableSpec{"XDG_RUNTIME_DIR", kPath, "TMPDIR", "parent of the folder where ranks meet"},
    VariableSpec{"HOME", kPath, "none", "parent of .cache"},
    VariableSpec{"TMPDIR", kPath, "/tmp", "folder of short-lived files"},
    VariableSpec{"NO_COLOR", kFlag, "colors on a terminal", "set and not empty: no colors"},
    VariableSpec{"TERM", kText, "dumb", "kind of terminal"},
    VariableSpec{"COLUMNS", kInteger, "the terminal's width", "width of tables"},
    VariableSpec{"OMP_NUM_THREADS", kInteger, "cores of the rank", "threads of one rank"},
    VariableSpec{"OMP_WAIT_POLICY", kText, "by the load when ranks start",
                 "OpenMP: threads that wait spin (active) or sleep (passive)"},
    VariableSpec{"GOMP_SPINCOUNT", kText, "OMP_WAIT_POLICY", "GNU's OpenMP: polls before a sleep"},
    VariableSpec{"KMP_BLOCKTIME", kText, "OMP_WAIT_POLICY",
                 "LLVM's and Intel's OpenMP: milliseconds before a sleep"},
    VariableSpec{"ATEN_CPU_CAPABILITY", kText, "the processor's", "libtorch: vector instructions"},
    VariableSpec{"ONEDNN_MAX_CPU_ISA", kText, "the processor's", "oneDNN: vector instructions"},
    VariableSpec{"DNNL_MAX_CPU_ISA", kText, "ONEDNN_MAX_CPU_ISA", "oneDNN: its older name"},
    VariableSpec{"MKL_ENABLE_INSTRUCTIONS", kText, "the processor's", "MKL: vector instructions"},
    VariableSpec{"MKL_CBWR", kText, "none", "MKL: one order of sums for several processors"},
    VariableSpec{"NVTX_INJECTION64_PATH", kPath, "none",
                 "NVTX: library of the tool that receives ranges, as nsys sets it"},
};
static_assert(kVariables.size() == static_cast<size_t>(Variable::kNvtxInjection64Path) + 1);

std::string_view name_in(std::string_view line) { return line.substr(0, line.find('=')); }

}  // namespace

std::span<const VariableSpec> variables() { return kVariables; }

const VariableSpec& spec_of(Variable variable) { return kVariables[static_cast<size_t>(variable)]; }

std::optional<std::string> read(Variable variable) {
  const char* value = std::getenv(spec_of(variable).name.data());
  if (value == nullptr) return {};
  return std::string(value);
}

Result<int> read_int(Variable variable) {
  const std::string name(spec_of(variable).name);
  const std::string text = read(variable).value_or("");
  if (text.empty()) return not_found("environment variable " + name + " is not set");
  int value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc() && end == last) return value;
  return invalid_argument("environment variable " + name + "='" + text + "' is no integer");
}

std::vector<NamedValue> read_environment() {
  std::vector<NamedValue> values;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text(*line);
    const std::string_view name = name_in(text);
    if (name.size() == text.size()) continue;  // no '=': nobody can read it by name
    values.push_back({std::string(name), std::string(text.substr(name.size() + 1))});
  }
  return values;
}

Status set_for_libraries(const std::string& name, const std::string& value) {
  if (::setenv(name.c_str(), value.c_str(), 1) == 0) return {};
  return invalid_argument("'" + name + "' cannot name an environment variable");
}

std::vector<std::string> child_environment(std::span<const Setting> settings) {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const auto replaces = [&](const Setting& setting) {
      return spec_of(setting.variable).name == name_in(*line);
    };
    if (std::none_of(settings.begin(), settings.end(), replaces)) lines.emplace_back(*line);
  }
  for (const Setting& setting : settings) {
    lines.push_back(std::string(spec_of(setting.variable).name) + "=" + setting.value);
  }
  return lines;
}

}  // namespace hanji::base
