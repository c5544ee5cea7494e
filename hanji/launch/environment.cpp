#include "hanji/launch/environment.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <span>

#include "hanji/launch/internal/claims.h"

namespace hanji::launch {
namespace {

using base::Variable;

/// Whether a launcher in `behind`, which is further outside or knows less, started this process instead.
bool yields(const Claim& claim, std::span<const Claim> behind,
            const std::function<bool(int)>& is_open) {
  const bool is_hanji = claim.identity.source == Source::kHanji;
  const bool is_torchrun = claim.identity.source == Source::kTorchrun;
  const bool is_inherited = is_hanji && is_open(claim.socket);
  return std::ranges::any_of(behind, [&](const Claim& other) {
    if (!other.holds()) return false;
    if (!claim.holds()) return !is_torchrun;  // a run id is torchrun's alone, and it sets all
    if (is_hanji && !is_inherited && other.is_launchers) return true;
    const bool one_of_several = claim.identity.world_size == 1 && other.identity.world_size > 1;
    return one_of_several && (is_hanji || (!is_torchrun && !other.is_launchers));
  });
}

const Claim& innermost(const std::vector<Claim>& claims, const std::function<bool(int)>& is_open) {
  for (size_t i = 0; i + 1 < claims.size(); ++i) {
    if (!yields(claims[i], std::span(claims).subspan(i + 1), is_open)) return claims[i];
  }
  return claims.back();
}

bool agree(const Claim& a, const Claim& b) {
  return a.identity.rank == b.identity.rank && a.identity.world_size == b.identity.world_size;
}

/// Whether RANK and its like repeat what another launcher's variables say; hanji sets them so.
bool has_copy(const std::vector<Claim>& claims) {
  const Claim& last = claims.back();
  return !last.is_launchers && last.holds() &&
         std::any_of(claims.begin(), claims.end() - 1,
                     [&](const Claim& other) { return other.holds() && agree(other, last); });
}

std::string describe_claim(const Claim& claim) {
  return fmt::format("{} ({})", name_of(claim.identity.source), claim.shown);
}

/// What stands in RANK and WORLD_SIZE may be of a launcher within mpirun or srun that hanji does not know,
/// or left over: nothing tells which.
Status check_copies(const Claim& chosen, const std::vector<Claim>& claims) {
  const Claim& last = claims.back();
  const bool may_be_inner = !last.is_launchers && last.holds() && last.identity.world_size > 1;
  const bool is_outer =
      chosen.identity.source == Source::kMpirun || chosen.identity.source == Source::kSrun;
  if (!may_be_inner || !is_outer) return {};
  return base::invalid_argument(fmt::format(
      "launchers contradict each other: {}; {}; unset RANK and WORLD_SIZE if they are left "
      "over, or set TORCHELASTIC_RUN_ID to a name of the job on all ranks if they hold",
      describe_claim(chosen), last.shown));
}

std::string describe_nesting(const Claim& chosen, const std::vector<Claim>& claims) {
  std::string others;
  for (const Claim& other : claims) {
    if (&other == &chosen) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", describe_claim(other));
  }
  if (others.empty()) return "";
  return fmt::format("started by {}; not followed, as outer launchers or left over: {}",
                     describe_claim(chosen), others);
}

/// What all ranks of this job, and no other job of this user on this host, have in common: what their
/// launcher alone sets. mpirun in a job of Slurm starts its ranks of other hosts by steps of srun.
Result<std::string> job_id_of(const Identity& identity, const Lookup& lookup) {
  std::string id(name_of(identity.source));
  const size_t bare = id.size();
  const auto add = [&](Variable variable) {
    const auto value = value_of(lookup, variable);
    if (value) id += fmt::format(" {}={}", base::spec_of(variable).name, *value);
  };
  if (identity.source == Source::kTorchrun) add(Variable::kTorchelasticRunId);
  if (identity.source == Source::kMpirun) add(Variable::kPmixNamespace);
  if (identity.source != Source::kTorchrun && id.size() == bare) {
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

bool is_open_socket(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

Result<Identity> detect(const Lookup& lookup, const std::function<bool(int)>& is_open) {
  std::vector<Claim> claims = read_claims(lookup);
  if (claims.empty()) {
    if (!value_of(lookup, Variable::kPmixRank)) return Identity{};
    return base::invalid_argument(
        show(lookup, {Variable::kPmixRank}) +
        ": a rank without a number of ranks; set WORLD_SIZE too, or unset "
        "it to run alone");
  }
  if (has_copy(claims)) claims.pop_back();
  const Claim& chosen = innermost(claims, is_open);
  HANJI_RETURN_IF_ERROR(chosen.wrong);
  HANJI_RETURN_IF_ERROR(check_copies(chosen, claims));
  Identity identity = chosen.identity;
  identity.nesting = describe_nesting(chosen, claims);
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
