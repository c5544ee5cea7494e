#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::base {

/// Every environment variable that hanji reads; the table in env.cpp is in the same order.
enum class Variable {
  kRank,
  kWorldSize,
  kLocalRank,
  kLocalWorldSize,
  kGroupRank,
  kGroupWorldSize,
  kMasterAddr,
  kMasterPort,
  kTorchelasticRunId,
  kTorchelasticRestartCount,
  kSlurmProcId,
  kSlurmLocalId,
  kSlurmNumTasks,
  kSlurmStepNumTasks,
  kSlurmTasksPerNode,
  kSlurmStepTasksPerNode,
  kSlurmNumNodes,
  kSlurmStepNumNodes,
  kSlurmNodeId,
  kSlurmNodeList,
  kSlurmStepNodeList,
  kSlurmJobId,
  kSlurmStepId,
  kSlurmRestartCount,
  kOmpiRank,
  kOmpiSize,
  kOmpiLocalRank,
  kOmpiLocalSize,
  kPmiRank,
  kPmiSize,
  kMpiLocalRankId,
  kMpiLocalNumRanks,
  kPmixRank,
  kPmixNamespace,
  kHanjiEndpoints,
  kHanjiRendezvous,
  kHanjiTokenFile,
  kHanjiInterface,
  kHanjiCacheDir,
  kHanjiSimd,
  kXdgCacheHome,
  kXdgRuntimeDir,
  kHome,
  kTmpDir,
  kNoColor,
  kTerm,
  kColumns,
  kOmpNumThreads,
  kOmpWaitPolicy,
  kGompSpinCount,
  kKmpBlocktime,
  kAtenCpuCapability,
  kOneDnnMaxCpuIsa,
  kDnnlMaxCpuIsa,
  kMklEnableInstructions,
  kMklCbwr,
  kNvtxInjection64Path,
};

enum class VariableType { kText, kInteger, kPath, kFlag };

struct VariableSpec {
  std::string_view name;
  VariableType type;
  std::string_view default_value;  ///< What happens without it, in words.
  std::string_view doc;
};

/// The whole table, indexed by Variable.
std::span<const VariableSpec> variables();
const VariableSpec& spec_of(Variable variable);

/// Its value; nothing if unset. The only door to getenv(3).
std::optional<std::string> read(Variable variable);
/// Errors  kNotFound if unset or empty; kInvalidArgument if no integer (name and value told).
Result<int> read_int(Variable variable);

struct NamedValue {
  std::string name;
  std::string value;
};

/// The whole environment, for reports about it; what decides anything is read by read().
std::vector<NamedValue> read_environment();

/// Sets a variable of this process for a library that reads it when it is loaded or started.
/// Errors  invalid_argument for a name that no variable can have.
/// Order   before other threads read the environment.
Status set_for_libraries(const std::string& name, const std::string& value);

struct Setting {
  Variable variable;
  std::string value;
};

/// "NAME=value" lines for a child: this process's environment with `settings` replaced or added.
std::vector<std::string> child_environment(std::span<const Setting> settings);

}  // namespace hanji::base
