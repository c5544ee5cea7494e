#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::report {

/// What a number or tensor is to a step, in the order in which a difference is looked for.
enum class Quantity : uint8_t { kBuffer, kGradient, kParameter, kOptimizer, kTotal };

/// "buffer", "gradient", "parameter", "optimizer", "total".
std::string_view name_of(Quantity quantity);

/// XXH3 of a tensor's bytes; of a total (loss, gradient norm) the bits of the double itself.
struct Digest {
  Quantity quantity = Quantity::kGradient;
  std::string name;
  uint64_t value = 0;
  bool operator==(const Digest&) const = default;
};

/// A backward() by its first grain, and the part of the model that the process has.
struct BackwardPart {
  int64_t grain = 0;
  int part = 0;  ///< Of mesh.pp x mesh.tp, the latter first.
  auto operator<=>(const BackwardPart&) const = default;
};

/// What one process saw of one step.
struct ObservedStep {
  int64_t step = 0;                  ///< Steps done; 0: before the first.
  std::string parameters_sha256;     ///< As in summary.json.
  std::vector<Digest> digests = {};  ///< In the model's order within a quantity.
  /// All gradients of one backward() of this process, before those of others are added. Of one process
  /// that is compared with ranks that cut the model, each part of them.
  std::map<BackwardPart, uint64_t> backwards = {};
  bool operator==(const ObservedStep&) const = default;
};

/// What one process saw of a job: the state before the first step, then every step.
struct ObservedRun {
  std::vector<ObservedStep> steps = {};
  std::string state_sha256 = {};  ///< Of parameters and optimizer after the last step.
  /// Of a rank that is compared within a bound: the largest difference within it, as a part of the largest
  /// value of its tensor.
  double farthest = 0;
  bool operator==(const ObservedRun&) const = default;
};

std::string to_json(const ObservedRun& run);
/// The longest text that observed_from_json() takes.
inline constexpr size_t kMaxObservedBytes = size_t{1} << 30;
/// Errors  kCorrupt, naming the member.
Result<ObservedRun> observed_from_json(std::string_view text);

}  // namespace hanji::report
