#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/topology/machine.h"

namespace hanji::topology {

/// How the OpenMP threads of a rank wait for one another: at the end of parallel work, and for more of it.
enum class WaitPolicy : uint8_t {
  kRuntime,  ///< What OpenMP's runtime does by itself: they spin for milliseconds, and then sleep.
  kSleep,    ///< They sleep at once, and leave their CPUs to what else runs there.
  kGiven,    ///< What the environment of the ranks says, in which nothing is changed.
};

/// "runtime", "sleep", "given".
std::string_view name_of(WaitPolicy policy);
std::optional<WaitPolicy> wait_policy_of(std::string_view name);

/// A policy with its reason, on one line.
struct WaitChoice {
  WaitPolicy policy = WaitPolicy::kRuntime;
  std::string why;
  bool operator==(const WaitChoice&) const = default;
};

/// The facts by which a policy is chosen.
struct WaitFacts {
  int ranks = 1;              ///< On this host.
  int threads = 1;            ///< Threads of each rank.
  double cpus = 1;            ///< For all of them, as cpus_of() counts.
  double cpus_of_others = 0;  ///< CPUs of these that other processes use now.
  std::string setting;        ///< The user's own, as wait_setting() reads it; empty: none.
  bool are_started = false;   ///< Ranks are there, and their environment is read already.
};

/// Threads that spin on a CPU that another thread needs keep it from the work they wait for. They sleep where
/// the ranks have more threads than CPUs, and where other processes use more than half a CPU of what these
/// threads need; elsewhere sleeping costs time, as a thread takes longer to wake up than to stop spinning.
WaitChoice choose_wait_policy(const WaitFacts& facts);

/// Logical CPUs in the affinity mask, at most the quota of the cgroup.
double cpus_of(const Machine& machine);

/// The first of OMP_WAIT_POLICY, GOMP_SPINCOUNT and KMP_BLOCKTIME that is set: "OMP_WAIT_POLICY=active".
std::string wait_setting();

/// How many of the machine's CPUs other processes use now; 0 where /proc/stat does not say.
/// Cost  sleeps for a tenth of a second.
double look_at_others(const Machine& machine);

/// "NAME=value" for ranks that are about to be started, for GNU's, LLVM's and Intel's OpenMP; empty where
/// nothing is to be changed.
std::vector<std::string> wait_variables(const WaitChoice& choice);

/// "sleep while they wait: other processes use 1.9 of 2 CPUs".
std::string describe(const WaitChoice& choice);

}  // namespace hanji::topology
