#include "hanji/topology/wait_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "hanji/base/env.h"
#include "hanji/topology/cpu_load.h"

namespace hanji::topology {
namespace {

using base::Variable;
using namespace std::chrono_literals;

/// Short work of a quiet host is no reason to sleep.
constexpr double kSpareCpus = 0.5;
/// In a shorter time /proc/stat counts too few of its hundredths of a second.
constexpr auto kLook = 100ms;

constexpr std::array kNames = {std::pair{WaitPolicy::kRuntime, std::string_view("runtime")},
                               std::pair{WaitPolicy::kSleep, std::string_view("sleep")},
                               std::pair{WaitPolicy::kGiven, std::string_view("given")}};

std::string set_to(Variable variable, std::string_view value) {
  return fmt::format("{}={}", base::spec_of(variable).name, value);
}

}  // namespace

std::string_view name_of(WaitPolicy policy) {
  return std::ranges::find(kNames, policy, &decltype(kNames)::value_type::first)->second;
}

std::optional<WaitPolicy> wait_policy_of(std::string_view name) {
  const auto found = std::ranges::find(kNames, name, &decltype(kNames)::value_type::second);
  if (found == kNames.end()) return {};
  return found->first;
}

WaitChoice choose_wait_policy(const WaitFacts& facts) {
  if (!facts.setting.empty()) return {WaitPolicy::kGiven, facts.setting + " is set"};
  if (facts.threads <= 1) return {WaitPolicy::kRuntime, "a rank has one thread"};
  if (facts.are_started) {
    return {WaitPolicy::kGiven, "their launcher has started them without OMP_WAIT_POLICY"};
  }
  const int threads = facts.ranks * facts.threads;
  if (threads > facts.cpus) {
    return {WaitPolicy::kSleep,
            fmt::format("{} threads of the ranks share {:.3g} CPUs", threads, facts.cpus)};
  }
  if (threads + facts.cpus_of_others > facts.cpus + kSpareCpus) {
    return {WaitPolicy::kSleep, fmt::format("other processes use {:.2g} of the {:.3g} CPUs",
                                            facts.cpus_of_others, facts.cpus)};
  }
  return {WaitPolicy::kRuntime, "each thread has a CPU to itself"};
}

double cpus_of(const Machine& machine) {
  size_t cpus = 0;
  for (const auto& core : machine.core_cpus) cpus += core.size();
  const double count = cpus > 0 ? static_cast<double>(cpus) : machine.usable_cores;
  return machine.cpu_quota > 0 ? std::min(count, machine.cpu_quota) : count;
}

std::string wait_setting() {
  for (const Variable one :
       {Variable::kOmpWaitPolicy, Variable::kGompSpinCount, Variable::kKmpBlocktime}) {
    if (const auto value = base::read(one)) return set_to(one, *value);
  }
  return "";
}

double look_at_others(const Machine& machine) {
  std::vector<int> cpus;
  for (const auto& core : machine.core_cpus) cpus.insert(cpus.end(), core.begin(), core.end());
  const auto begin = read_cpu_times_of(cpus);
  std::this_thread::sleep_for(kLook);
  const auto end = read_cpu_times_of(cpus);
  if (!begin.ok() || !end.ok()) return 0;
  return load_of_others(*begin, *end) * static_cast<double>(cpus.size());
}

std::vector<std::string> wait_variables(const WaitChoice& choice) {
  if (choice.policy != WaitPolicy::kSleep) return {};
  return {set_to(Variable::kOmpWaitPolicy, "passive"), set_to(Variable::kKmpBlocktime, "0")};
}

std::string describe(const WaitChoice& choice) {
  switch (choice.policy) {
    case WaitPolicy::kSleep: return "sleep while they wait: " + choice.why;
    case WaitPolicy::kGiven: return "wait as they are told: " + choice.why;
    case WaitPolicy::kRuntime: break;
  }
  return "spin before they sleep, as OpenMP does by itself: " + choice.why;
}

}  // namespace hanji::topology
