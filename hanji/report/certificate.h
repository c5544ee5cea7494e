#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/plan/plan.h"
#include "hanji/report/observed.h"

namespace hanji::report {

/// How far two tensors of one name are apart.
struct Distance {
  double largest = 0;        ///< Absolute; NaN if one side has a NaN.
  double largest_ulps = 0;   ///< Representable numbers between the two; 0 for integers.
  int64_t num_elements = 0;  ///< Whose bits differ.
  int64_t first_element = 0;
};

/// Where the ranks left the reference: the first step, and in it the first tensor in the order
/// buffers, gradients, parameters, optimizer, totals.
struct FirstDifference {
  int64_t step = 0;  ///< Steps done; 0: before the first.
  Quantity quantity = Quantity::kGradient;
  std::string tensor;
  std::vector<int> ranks = {};  ///< On which this tensor differs.
  bool replicas_agree = true;   ///< All ranks hold the same bits of it.
  int64_t num_tensors = 0;      ///< Of this quantity that differ, on the first of `ranks`,
  int64_t of_tensors = 0;       ///< and how many there are.
  /// The backward() whose own gradients differ already, before those of others are added; none: the
  /// gradients were right where they were made, and their sum is not.
  struct Backward {
    int rank = 0;
    int64_t grain = 0;  ///< Its first one.
    bool operator==(const Backward&) const = default;
  };
  std::optional<Backward> backward = std::nullopt;
  /// Axes of the mesh that the difference lies on: without one of them, the rest of the mesh kept, the
  /// ranks are one process.
  std::vector<std::string> axes = {};
  /// Axes without which the job did not come to its end, each with the error.
  std::map<std::string, std::string> unknown_axes = {};
  std::optional<Distance> distance = std::nullopt;  ///< On the first of `ranks`.
};

/// The first difference between `expected` and any of `ranks`, or none.
/// Errors  kInvalidArgument if the runs do not have the same steps.
Result<std::optional<FirstDifference>> first_difference(const ObservedRun& expected,
                                                        std::span<const ObservedRun> ranks);

/// What `hanji verify` found: that a plan's ranks are, or are not, one process; bit for bit, or within
/// plan::verified_within().
struct Certificate {
  plan::Plan plan;
  std::string build_id;
  std::string host;
  ObservedRun expected;  ///< Of the one process.
  std::optional<FirstDifference> difference = std::nullopt;
  double farthest = 0;  ///< Of the ranks' ObservedRun::farthest the largest.

  bool equal() const { return !difference; }
};

/// The certificate as a file: job, seed, build, both plans, a hash per step, and the verdict.
std::string to_json(const Certificate& certificate);
/// For people: at most 80 columns of ASCII but for the hashes.
std::string describe(const Certificate& certificate);

}  // namespace hanji::report
