#include "hanji/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/launch/internal/announcement.h"

namespace hanji::launch {
namespace {

using base::Variable;

/// The four variables in which a launcher tells a process its place.
struct Family {
  Source source;
  Variable rank;
  Variable size;
  Variable local_rank;
  Variable local_size;
};

constexpr std::array kMpiFamilies = {
    Family{Source::kMpirun, Variable::kOmpiRank, Variable::kOmpiSize, Variable::kOmpiLocalRank,
           Variable::kOmpiLocalSize},
    Family{Source::kMpirun, Variable::kPmiRank, Variable::kPmiSize, Variable::kMpiLocalRankId,
           Variable::kMpiLocalNumRanks},
};

constexpr Family kTorchrunFamily = {Source::kTorchrun, Variable::kRank, Variable::kWorldSize,
                                    Variable::kLocalRank, Variable::kLocalWorldSize};

std::string name(Variable variable) { return std::string(base::spec_of(variable).name); }

std::optional<std::string> value_of(const Lookup& lookup, Variable variable) {
  auto value = lookup(variable);
  if (value && value->empty()) return {};
  return value;
}

/// "RANK=1 WORLD_SIZE (not set)".
std::string show(const Lookup& lookup, std::initializer_list<Variable> variables) {
  std::string text;
  for (const Variable variable : variables) {
    const auto value = value_of(lookup, variable);
    text += text.empty() ? "" : " ";
    text += name(variable) + (value ? "=" + *value : " (not set)");
  }
  return text;
}

/// The integer in `variable`, or `otherwise` if it is not set.
Result<int> integer(const Lookup& lookup, Variable variable, std::optional<int> otherwise) {
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

/// One launcher's word, and the variables it stands in.
struct Claim {
  Identity identity;
  std::string shown;
};

/// Which of how many hosts. torchrun tells both; of Open MPI and PMI nobody does.
Status find_hosts(const Family& family, const Lookup& lookup, Identity& identity) {
  if (identity.local_size == identity.world_size) return {};
  identity.node = -1;
  identity.num_nodes = 0;
  if (family.source != Source::kTorchrun) return {};
  HANJI_ASSIGN_OR_RETURN(identity.node, integer(lookup, Variable::kGroupRank, -1));
  HANJI_ASSIGN_OR_RETURN(identity.num_nodes, integer(lookup, Variable::kGroupWorldSize, 0));
  return {};
}

Result<std::optional<Claim>> claim_of(const Family& family, const Lookup& lookup) {
  if (!value_of(lookup, family.rank) && !value_of(lookup, family.size)) return {std::nullopt};
  Claim claim;
  claim.shown = show(lookup, {family.rank, family.size, family.local_rank, family.local_size});
  const auto missing = [&](const Status& status) {
    return base::invalid_argument(
        fmt::format("{} (all of it: {}); unset what is left over from another launcher",
                    status.message(), claim.shown));
  };
  Identity& identity = claim.identity;
  identity.source = family.source;
  const auto rank = integer(lookup, family.rank, {});
  if (!rank.ok()) return missing(rank.status());
  const auto size = integer(lookup, family.size, {});
  if (!size.ok()) return missing(size.status());
  identity.rank = *rank;
  identity.world_size = *size;
  HANJI_ASSIGN_OR_RETURN(identity.local_rank, integer(lookup, family.local_rank, *rank));
  HANJI_ASSIGN_OR_RETURN(identity.local_size, integer(lookup, family.local_size, *size));
  HANJI_RETURN_IF_ERROR(check_ranges(identity, claim.shown));
  HANJI_RETURN_IF_ERROR(find_hosts(family, lookup, identity));
  return {claim};
}

/// A batch script has SLURM_PROCID too; only a task of srun has a step.
Result<std::optional<Claim>> slurm_claim(const Lookup& lookup) {
  if (!value_of(lookup, Variable::kSlurmStepId) || !value_of(lookup, Variable::kSlurmProcId)) {
    return {std::nullopt};
  }
  Claim claim;
  Identity& identity = claim.identity;
  identity.source = Source::kSrun;
  claim.shown = show(
      lookup, {Variable::kSlurmProcId, Variable::kSlurmStepNumTasks, Variable::kSlurmNumTasks,
               Variable::kSlurmLocalId, Variable::kSlurmStepNumNodes, Variable::kSlurmNumNodes});
  HANJI_ASSIGN_OR_RETURN(identity.rank, integer(lookup, Variable::kSlurmProcId, {}));
  const Variable size = value_of(lookup, Variable::kSlurmStepNumTasks)
                            ? Variable::kSlurmStepNumTasks
                            : Variable::kSlurmNumTasks;
  HANJI_ASSIGN_OR_RETURN(identity.world_size, integer(lookup, size, {}));
  HANJI_ASSIGN_OR_RETURN(identity.local_rank,
                         integer(lookup, Variable::kSlurmLocalId, identity.rank));
  const Variable hosts = value_of(lookup, Variable::kSlurmStepNumNodes)
                             ? Variable::kSlurmStepNumNodes
                             : Variable::kSlurmNumNodes;
  HANJI_ASSIGN_OR_RETURN(const int num_hosts, integer(lookup, hosts, 1));
  if (num_hosts < 1) return base::invalid_argument(claim.shown + ": needs at least one host");
  const int even_share = (identity.world_size + num_hosts - 1) / num_hosts;
  HANJI_ASSIGN_OR_RETURN(const int per_host,
                         integer(lookup, Variable::kSlurmTasksPerNode, even_share));
  identity.local_size = num_hosts == 1 ? identity.world_size : per_host;
  identity.num_nodes = num_hosts;
  HANJI_ASSIGN_OR_RETURN(identity.node,
                         integer(lookup, Variable::kSlurmNodeId, num_hosts == 1 ? 0 : -1));
  HANJI_RETURN_IF_ERROR(check_ranges(identity, claim.shown));
  return {claim};
}

Result<std::optional<Claim>> hanji_claim(const Lookup& lookup) {
  const auto text = value_of(lookup, Variable::kHanjiEndpoints);
  if (!text) return {std::nullopt};
  HANJI_ASSIGN_OR_RETURN(const Announcement told, parse_announcement(*text));
  Claim claim;
  claim.identity = {.source = Source::kHanji,
                    .rank = told.first_rank + told.rank,
                    .world_size = told.world_size,
                    .local_rank = told.rank,
                    .local_size = told.size,
                    .node = told.node,
                    .num_nodes = told.num_nodes,
                    .job_id = ""};
  claim.shown = show(lookup, {Variable::kHanjiEndpoints});
  return {claim};
}

/// Of claims that agree the first counts. Scripts like to copy another launcher's numbers to RANK
/// and WORLD_SIZE, so these come last.
Result<std::vector<Claim>> all_claims(const Lookup& lookup) {
  std::vector<Result<std::optional<Claim>>> asked;
  asked.push_back(hanji_claim(lookup));
  for (const Family& family : kMpiFamilies) asked.push_back(claim_of(family, lookup));
  asked.push_back(slurm_claim(lookup));
  asked.push_back(claim_of(kTorchrunFamily, lookup));
  std::vector<Claim> claims;
  for (auto& claim : asked) {
    if (!claim.ok()) return claim.status();
    if (claim->has_value()) claims.push_back(**claim);
  }
  if (claims.empty() && value_of(lookup, Variable::kPmixRank)) {
    return base::invalid_argument(
        show(lookup, {Variable::kPmixRank}) +
        ": a rank without a number of ranks; set WORLD_SIZE too, or unset "
        "it to run alone");
  }
  return claims;
}

/// The claim that holds, or why two of them cannot both be true.
Result<Identity> agree(const std::vector<Claim>& claims) {
  const auto several = [](const Claim& claim) { return claim.identity.world_size > 1; };
  const auto chosen = std::find_if(claims.begin(), claims.end(), several);
  if (chosen == claims.end()) return claims.empty() ? Identity{} : claims.front().identity;
  std::string shown;
  bool conflict = false;
  for (const Claim& claim : claims) {
    if (!several(claim)) continue;
    shown += fmt::format("{}{} ({})", shown.empty() ? "" : "; ", claim.shown,
                         name_of(claim.identity.source));
    conflict |= claim.identity.rank != chosen->identity.rank ||
                claim.identity.world_size != chosen->identity.world_size;
  }
  if (!conflict) return chosen->identity;
  return base::invalid_argument("launchers contradict each other: " + shown +
                                "; unset the variables of all but the one that started the ranks");
}

/// What all ranks of this job, and no other job of this user on this host, have in common.
Result<std::string> job_id_of(const Identity& identity, const Lookup& lookup) {
  std::string id(name_of(identity.source));
  const size_t bare = id.size();
  const auto add = [&](Variable variable) {
    const auto value = value_of(lookup, variable);
    if (value) id += fmt::format(" {}={}", name(variable), *value);
  };
  if (identity.source == Source::kTorchrun) {
    add(Variable::kTorchelasticRunId);
  } else {
    if (identity.source == Source::kMpirun) add(Variable::kPmixNamespace);
    add(Variable::kSlurmJobId);
    add(Variable::kSlurmStepId);
  }
  add(Variable::kMasterAddr);
  add(Variable::kMasterPort);
  if (id.size() == bare) {
    return base::invalid_argument(
        "nothing in the environment names the job, so its ranks cannot find each other: set "
        "MASTER_ADDR and MASTER_PORT to the same values on all ranks");
  }
  add(identity.source == Source::kTorchrun ? Variable::kTorchelasticRestartCount
                                           : Variable::kSlurmRestartCount);
  return id;
}

}  // namespace

std::string_view name_of(Source source) {
  switch (source) {
    case Source::kAlone: return "alone";
    case Source::kHanji: return "hanji";
    case Source::kTorchrun: return "torchrun";
    case Source::kMpirun: return "mpirun";
    case Source::kSrun: return "srun";
  }
  return "unknown";
}

Result<Identity> detect(const Lookup& lookup) {
  HANJI_ASSIGN_OR_RETURN(const std::vector<Claim> claims, all_claims(lookup));
  HANJI_ASSIGN_OR_RETURN(Identity identity, agree(claims));
  if (identity.world_size > 1 && identity.source != Source::kHanji) {
    HANJI_ASSIGN_OR_RETURN(identity.job_id, job_id_of(identity, lookup));
  }
  return identity;
}

const std::vector<Variable>& identity_variables() {
  static const std::vector<Variable> all = {
      Variable::kHanjiEndpoints,
      Variable::kRank,
      Variable::kWorldSize,
      Variable::kLocalRank,
      Variable::kLocalWorldSize,
      Variable::kGroupRank,
      Variable::kGroupWorldSize,
      Variable::kTorchelasticRunId,
      Variable::kTorchelasticRestartCount,
      Variable::kOmpiRank,
      Variable::kOmpiSize,
      Variable::kOmpiLocalRank,
      Variable::kOmpiLocalSize,
      Variable::kPmiRank,
      Variable::kPmiSize,
      Variable::kMpiLocalRankId,
      Variable::kMpiLocalNumRanks,
      Variable::kPmixRank,
      Variable::kPmixNamespace,
      Variable::kSlurmProcId,
      Variable::kSlurmLocalId,
      Variable::kSlurmStepId,
  };
  return all;
}

}  // namespace hanji::launch
