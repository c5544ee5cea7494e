#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/rates.h"
#include "hanji/schedule/operation.h"

namespace hanji::cost {

/// What crosses the axis where its ranks share a linear layer Y[m, n] = X[m, k] W[k, n].
enum class Moved : uint8_t {
  kInput,    ///< X is gathered; each rank has columns of W and of Y.
  kOutput,   ///< Each rank has rows of W; the terms of Y are added up and scattered.
  kWeights,  ///< W is gathered, in the backward again; each rank has rows (tokens) of X and Y.
};
inline constexpr std::array kAllMoved{Moved::kInput, Moved::kOutput, Moved::kWeights};

/// "input", "output", "weights".
std::string_view name_of(Moved moved);

/// How the activations before or after a layer are cut.
enum class End : uint8_t {
  kFree,      ///< As each choice leaves them.
  kWhole,     ///< Not at all: norms and residuals that every rank computes.
  kTokens,    ///< By rows: norms and residuals under sequence parallelism.
  kFeatures,  ///< By columns: heads of attention, the inside of an MLP.
};

/// A linear layer between ends that are fixed, or not.
struct LinearRegion {
  std::string name;
  int64_t rows = 1;     ///< m: tokens of a micro-batch.
  int64_t inputs = 1;   ///< k
  int64_t outputs = 1;  ///< n
  End before = End::kFree;
  End after = End::kFree;
};

/// "qkv=4096x6144:tokens-features", "out=4096x4096"; `rows` is added.
/// Errors  kInvalidArgument, with the form and an example.
Result<LinearRegion> parse_linear_region(std::string_view text, int64_t rows);

/// A collective of one choice.
struct RegionCall {
  schedule::Routine routine = schedule::Routine::kAllGather;
  int64_t elements = 0;  ///< Of the whole matrix, of which each rank has a part.
  bool is_backward = false;
  bool sums_weights = false;  ///< Gradients of the weights move.

  /// Elements that each rank sends, over links that carry a part once.
  double sent_elements(int ranks) const;
};

/// What one choice costs in forward and backward together.
struct RegionCost {
  Moved moved = Moved::kInput;
  std::vector<RegionCall> calls;
  double sent_bytes = 0;  ///< By each rank.
  double seconds = 0;
};

/// The collectives of a choice, an all_to_all wherever an end is cut otherwise than the choice needs.
///
/// Result  per layer and forward plus backward, times (t-1)/t of t ranks: 2mk elements for the input,
///         2mn for the output, 3kn for the weights, 2/t of a matrix for each end that turns, and one
///         matrix for each whole end that the choice cuts.
/// Source  Megatron-LM, arXiv 1909.08053, for the first two; Rajbhandari et al., ZeRO, arXiv
///         1910.02054, section 7.2.2, for the third.
std::vector<RegionCall> calls_of(const LinearRegion& region, Moved moved);

/// Seconds of a call on so many bytes of a whole matrix.
using SecondsOf = std::function<double(schedule::Routine routine, int64_t bytes)>;
/// Of ranks that share memory, for float32 outside the heap, where activations lie.
SecondsOf seconds_on_host(Rates rates, int ranks);

struct ElementBytes {
  int64_t moved = 4;             ///< Of activations, and of weights that are gathered for them.
  int64_t weight_gradients = 4;  ///< Of these, which are as wide as parameters.
};

/// What these calls cost together.
RegionCost cost_of(Moved moved, std::vector<RegionCall> calls, int ranks, const ElementBytes& bytes,
                   const SecondsOf& seconds_of);

/// All three choices, the cheapest first; of equals the first of kAllMoved.
/// Order   ranks >= 1, sizes >= 1.
std::vector<RegionCost> compare_moved(const LinearRegion& region, int ranks, int64_t element_bytes,
                                      const SecondsOf& seconds_of);

}  // namespace hanji::cost
