#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/cost/fitted.h"
#include "hanji/cost/rates.h"
#include "hanji/topology/machine.h"

namespace hanji::cost {

/// What fitted costs depend on besides the number of ranks.
struct Stamp {
  std::string cpu_model;
  int cores = 0;          ///< Usable ones.
  std::string kernel;     ///< Its release.
  std::string version;    ///< Of hanji.
  std::string placement;  ///< placement_class().

  bool operator==(const Stamp&) const = default;
};

/// How ranks lie to each other: "near" in one NUMA node, "far" across several, "shared" where they
/// are more than usable cores and share them.
std::string placement_class(const topology::Machine& machine, int ranks);
Stamp stamp_of(const topology::Machine& machine, int ranks);

/// Costs as they lie in a file.
struct StoredCosts {
  Stamp stamp;
  int64_t fitted_at = 0;   ///< Seconds since 1970-01-01 UTC.
  double fit_seconds = 0;  ///< How long calls were timed; below kThoroughSeconds a first guess.
  double load = 0;         ///< Share of all CPUs that other processes used meanwhile.
  int fits = 1;            ///< Of which these are those with the least load.
  FittedCosts costs;

  bool operator==(const StoredCosts&) const = default;
};

/// Costs that were fitted with a load above topology::kMaxLoad are fitted again, once.
inline constexpr int kMaxFits = 2;

/// What `hanji bench --fit` takes.
inline constexpr double kThoroughSeconds = 7;
inline constexpr int kMaxDays = 30;              ///< Older costs are stale.
inline constexpr double kMaxDisagreement = 0.2;  ///< Of a few calls that are timed again.

std::string to_json(const StoredCosts& stored);
/// Strict. Errors: corrupt names the member.
Result<StoredCosts> stored_from_json(std::string_view text);

/// Why the costs are of no use here and now: what of the stamp differs, with both values, or their
/// age. Empty: they are fresh.
std::string why_stale(const StoredCosts& stored, const Stamp& here, int64_t now_seconds);

/// One file per number of ranks in hanji's folder for measurements.
std::filesystem::path costs_file(const std::filesystem::path& folder, int ranks);
/// Makes the folder if it is not there.
Status save_costs(const std::filesystem::path& folder, const StoredCosts& stored);
/// Errors  not_found where nothing was fitted for as many ranks; corrupt.
Result<StoredCosts> load_costs(const std::filesystem::path& folder, int ranks);

/// "costs timed on 2026-11-22 for 7 s"; of a first guess also what is better, and the load.
std::string describe(const StoredCosts& stored);

/// Gives `rates` the costs that were fitted on this machine for as many ranks.
/// Result  empty where they are there and fresh; else why not, with the way out, and `rates` as it
///         was.
std::string use_fitted(Rates& rates, const std::filesystem::path& folder,
                       const topology::Machine& machine, int ranks);

}  // namespace hanji::cost
