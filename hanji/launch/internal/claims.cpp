#include "hanji/launch/internal/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hanji/launch/internal/announcement.h"

namespace hanji::launch {
namespace {

using base::Variable;

/// Slurm numbers batch scripts and interactive shells from 0xfffffff0, as if they were steps.
constexpr std::string_view kFirstSpecialStep = "4294967280";

/// The four variables by which a launcher names the place of a process.
struct Family {
  Source source;
  Variable rank;
  Variable size;
  Variable local_rank;
  Variable local_size;

  std::vector<Variable> all() const { return {rank, size, local_rank, local_size}; }
};

constexpr Family kTorchrunFamily = {Source::kTorchrun, Variable::kRank, Variable::kWorldSize,
                                    Variable::kLocalRank, Variable::kLocalWorldSize};
constexpr Family kOpenMpiFamily = {Source::kMpirun, Variable::kOmpiRank, Variable::kOmpiSize,
                                   Variable::kOmpiLocalRank, Variable::kOmpiLocalSize};
constexpr Family kPmiFamily = {Source::kMpirun, Variable::kPmiRank, Variable::kPmiSize,
                               Variable::kMpiLocalRankId, Variable::kMpiLocalNumRanks};

std::string name(Variable variable) { return std::string(base::spec_of(variable).name); }

/// The integer in `variable`, or `otherwise` if it is not set.
Result<int> integer(const Lookup& lookup, Variable variable, std::optional<int> otherwise = {}) {
  const auto text = value_of(lookup, variable);
  if (!text && otherwise) return *otherwise;
  const auto value = text ? parse_integer(*text) : std::nullopt;
  if (value) return *value;
  return base::invalid_argument(show(lookup, {variable}) + ": an integer is needed");
}

Status check_ranges(const Identity& identity, const std::string& shown) {
  const bool ordered = identity.rank >= 0 && identity.rank < identity.world_size &&
                       identity.local_rank >= 0 && identity.local_rank < identity.local_size &&
                       identity.local_size <= identity.world_size;
  if (ordered) return {};
  return base::invalid_argument(
      fmt::format("{}: needs 0 <= rank < size on the host and in the world", shown));
}

/// Names what a launcher's set lacks. Without both places on the host, all ranks are taken to be here.
Status check_complete(const Family& family, const Lookup& lookup, Identity& identity) {
  std::vector<std::string> missing, local;
  for (const Variable variable : family.all()) {
    if (value_of(lookup, variable)) continue;
    const bool is_local = variable == family.local_rank || variable == family.local_size;
    (is_local ? local : missing).push_back(name(variable));
  }
  if (missing.empty() && local.size() == 2) {
    identity.assumption = fmt::format("{} are not set, so all ranks are looked for on this host",
                                      fmt::join(local, " and "));
    return {};
  }
  missing.insert(missing.end(), local.begin(), local.end());
  if (missing.empty()) return {};
  return base::invalid_argument(fmt::format(
      "{} {} not set ({}); set all of the launcher's variables, or unset what is left over from "
      "another launcher",
      fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are", show(lookup, family.all())));
}

/// Which of how many hosts: known of torchrun only.
Status find_hosts(const Family& family, const Lookup& lookup, Identity& identity) {
  if (identity.local_size == identity.world_size) return {};
  identity.node = -1;
  identity.num_nodes = 0;
  if (family.source != Source::kTorchrun) return {};
  HANJI_ASSIGN_OR_RETURN(identity.node, integer(lookup, Variable::kGroupRank, -1));
  HANJI_ASSIGN_OR_RETURN(identity.num_nodes, integer(lookup, Variable::kGroupWorldSize, 0));
  return {};
}

Status read_family(const Family& family, const Lookup& lookup, Identity& identity) {
  HANJI_RETURN_IF_ERROR(check_complete(family, lookup, identity));
  HANJI_ASSIGN_OR_RETURN(identity.rank, integer(lookup, family.rank));
  HANJI_ASSIGN_OR_RETURN(identity.world_size, integer(lookup, family.size));
  HANJI_ASSIGN_OR_RETURN(identity.local_rank, integer(lookup, family.local_rank, identity.rank));
  HANJI_ASSIGN_OR_RETURN(identity.local_size,
                         integer(lookup, family.local_size, identity.world_size));
  HANJI_RETURN_IF_ERROR(check_ranges(identity, show(lookup, family.all())));
  return find_hosts(family, lookup, identity);
}

std::optional<Claim> family_claim(const Family& family, const Lookup& lookup) {
  if (!value_of(lookup, family.rank) && !value_of(lookup, family.size)) return {};
  Claim claim;
  claim.shown = show(lookup, family.all());
  claim.identity.source = family.source;
  claim.wrong = read_family(family, lookup, claim.identity);
  return claim;
}

std::vector<Variable> slurm_variables(const Lookup& lookup) {
  const auto step_or_job = [&](Variable step, Variable job) {
    return value_of(lookup, step) ? step : job;
  };
  return {
      Variable::kSlurmProcId, step_or_job(Variable::kSlurmStepNumTasks, Variable::kSlurmNumTasks),
      Variable::kSlurmLocalId, step_or_job(Variable::kSlurmStepNumNodes, Variable::kSlurmNumNodes)};
}

/// The number at `index` of Slurm's "2(x3),1": 2, 2, 2, 1.
std::optional<int> number_in_list(std::string_view list, int index) {
  while (index >= 0 && !list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const size_t open = entry.find("(x");
    const auto count = parse_integer(entry.substr(0, open));
    const auto repeats = open == entry.npos
                             ? std::optional(1)
                             : parse_integer(entry.substr(open + 2, entry.find(')') - open - 2));
    if (!count || !repeats || *repeats < 1) return {};
    if (index < *repeats) return count;
    index -= *repeats;
  }
  return {};
}

/// The tasks of a step on this host, of several.
Result<int> slurm_tasks_here(const Lookup& lookup, const Identity& identity) {
  const auto list = value_of(lookup, Variable::kSlurmStepTasksPerNode);
  if (list && identity.node >= 0) {
    if (const auto tasks = number_in_list(*list, identity.node)) return *tasks;
    return base::invalid_argument(fmt::format("{}: needs the tasks of node {}",
                                              show(lookup, {Variable::kSlurmStepTasksPerNode}),
                                              identity.node));
  }
  const int even_share = (identity.world_size + identity.num_nodes - 1) / identity.num_nodes;
  return integer(lookup, Variable::kSlurmTasksPerNode, even_share);
}

Status read_slurm(const Lookup& lookup, Identity& identity) {
  const std::vector<Variable> variables = slurm_variables(lookup);
  HANJI_ASSIGN_OR_RETURN(identity.rank, integer(lookup, variables[0]));
  HANJI_ASSIGN_OR_RETURN(identity.world_size, integer(lookup, variables[1]));
  HANJI_ASSIGN_OR_RETURN(identity.num_nodes, integer(lookup, variables[3], 1));
  const std::string shown = show(lookup, variables);
  if (identity.num_nodes < 1) return base::invalid_argument(shown + ": needs at least one host");
  const bool is_one = identity.num_nodes == 1;
  // On one host the two are equal.
  const auto own = is_one ? std::optional(identity.rank) : std::nullopt;
  HANJI_ASSIGN_OR_RETURN(identity.local_rank, integer(lookup, variables[2], own));
  HANJI_ASSIGN_OR_RETURN(identity.node, integer(lookup, Variable::kSlurmNodeId, is_one ? 0 : -1));
  identity.local_size = identity.world_size;
  if (!is_one) {
    HANJI_ASSIGN_OR_RETURN(identity.local_size, slurm_tasks_here(lookup, identity));
  }
  return check_ranges(identity, shown);
}

/// A batch script has SLURM_PROCID too; only a task of srun has a step of its own.
std::optional<Claim> slurm_claim(const Lookup& lookup) {
  const auto step = value_of(lookup, Variable::kSlurmStepId);
  if (!step || !value_of(lookup, Variable::kSlurmProcId)) return {};
  if (step->size() == kFirstSpecialStep.size() && *step >= kFirstSpecialStep) return {};
  Claim claim;
  claim.identity.source = Source::kSrun;
  claim.shown = show(lookup, slurm_variables(lookup));
  claim.wrong = read_slurm(lookup, claim.identity);
  return claim;
}

std::optional<Claim> hanji_claim(const Lookup& lookup) {
  const auto text = value_of(lookup, Variable::kHanjiEndpoints);
  if (!text) return {};
  Claim claim;
  claim.identity.source = Source::kHanji;
  claim.shown = show(lookup, {Variable::kHanjiEndpoints});
  const auto told = parse_announcement(*text);
  claim.wrong = told.status();
  if (!told.ok()) return claim;
  claim.socket = told->control;
  claim.identity = {.source = Source::kHanji,
                    .rank = told->first_rank + told->rank,
                    .world_size = told->world_size,
                    .local_rank = told->rank,
                    .local_size = told->size,
                    .node = told->node,
                    .num_nodes = told->num_nodes,
                    .job_id = ""};
  return claim;
}

/// srun's own PMI tells no places on the host, which srun's variables do.
std::optional<Claim> pmi_claim(const Lookup& lookup, const std::optional<Claim>& slurm) {
  const bool has_places =
      value_of(lookup, kPmiFamily.local_rank) || value_of(lookup, kPmiFamily.local_size);
  if (slurm && !has_places) return {};
  return family_claim(kPmiFamily, lookup);
}

}  // namespace

std::optional<std::string> value_of(const Lookup& lookup, Variable variable) {
  auto value = lookup(variable);
  if (value && value->empty()) return {};
  return value;
}

std::string show(const Lookup& lookup, const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable variable : variables) {
    const auto value = value_of(lookup, variable);
    text += text.empty() ? "" : " ";
    text += name(variable) + (value ? "=" + *value : " (not set)");
  }
  return text;
}

std::vector<Claim> read_claims(const Lookup& lookup) {
  std::optional<Claim> torchrun = family_claim(kTorchrunFamily, lookup), plain;
  if (torchrun && !value_of(lookup, Variable::kTorchelasticRunId)) {
    torchrun->is_launchers = false;
    plain = std::exchange(torchrun, std::nullopt);
  }
  const std::optional<Claim> slurm = slurm_claim(lookup);
  std::vector<Claim> claims;
  for (auto& claim : {hanji_claim(lookup), torchrun, family_claim(kOpenMpiFamily, lookup),
                      pmi_claim(lookup, slurm), slurm, plain}) {
    if (claim) claims.push_back(*claim);
  }
  return claims;
}

}  // namespace hanji::launch
