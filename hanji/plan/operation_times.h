#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/pipeline_timeline.h"
#include "hanji/topology/gpu_rates.h"

namespace hanji::plan {

/// An operation as it was timed, or priced by one that was.
struct TimedOperation {
  std::string name;    ///< What it is and its sizes: "product 512 x 128 x 384".
  double count = 0;    ///< Calls of a forward and backward of OperationTimes::samples.
  double seconds = 0;  ///< Of one call, forward and backward where it has both.
  double forward = 0;  ///< Of these, the forward; 0: not told apart.
  double launch =
      0;  ///< The host's, which queues the call for a GPU; `seconds` are the GPU's then.
  bool operator==(const TimedOperation&) const = default;
};

/// A part of reading a sample: "decode", or the name of a stage.
struct SamplePart {
  std::string name;
  double seconds = 0;  ///< Of a sample, the mean of those that were timed.
  bool operator==(const SamplePart&) const = default;
};

/// The parts of a sample, of the seconds of samples that were read up to each of them: what each adds to
/// the one before it, nothing if it takes less, scaled so that all add up to `sample_seconds`.
std::vector<SamplePart> parts_of_sample(const std::vector<std::string>& names,
                                        const std::vector<double>& seconds_up_to,
                                        double sample_seconds);
/// The part that takes longest; null without parts.
const SamplePart* longest_part(const std::vector<SamplePart>& parts);

/// What the operations of a job cost on one rank while all ranks of its host are busy, each timed by
/// itself. samples = 0: nothing was timed, and steps are priced by rates.
struct OperationTimes {
  int64_t samples = 0;  ///< Of the micro-batch that was timed.
  /// Of the samples that were timed in place of larger ones, to which seconds were scaled; 0: of the job's own.
  int64_t residues = 0;
  std::vector<TimedOperation> operations = {};  ///< Of its forward and backward.
  /// The same seconds, of `samples` samples in each layer of the model; empty where operations have the names that the
  /// model's facts give them.
  std::vector<schedule::StageSeconds> layers = {};
  double update_seconds = 0;    ///< The norm of all gradients and the update of all parameters.
  double sample_seconds = 0;    ///< Reading one sample.
  double sample_deviation = 0;  ///< Of it from sample to sample, the standard deviation.
  std::vector<SamplePart> sample_parts = {};  ///< Of sample_seconds; of files of images.
  /// Reading and checking a page of a file past the kernel's cache; 0: none is read so.
  double page_seconds = 0;
  double pages_per_sample = 0;  ///< Pages that come for each sample that is read, of all ranks.
  /// Rates of the GPU that operations were timed on; none: on this host's cores.
  std::optional<topology::GpuRates> gpu = {};

  /// Seconds of forwards and backwards of so many samples in so many passes. On a GPU the longer of two sums: the
  /// operations' own, and their launches, which do not depend on the samples. A host queues ahead of its device
  /// until it reads a number, so that within a step one of the two waits for the other all the time.
  double seconds_of(double samples, int64_t passes = 1) const;
  double launches_of(int64_t passes = 1) const;
  bool operator==(const OperationTimes&) const = default;
};

std::string to_json(const OperationTimes& times);
/// Strict. Errors: kCorrupt names the member.
Result<OperationTimes> operation_times_from_json(std::string_view text);

/// Kinds of which one may be priced by another.
enum class OperationKind : uint8_t {
  kProduct,
  kAttention,
  kEmbedding,
  kNorm,
  kGelu,
  kLoss,
  kCopy,
  kRecorded,  ///< Any operation of libtorch, as a model was seen to call it.
};

/// Calls of a recorded operation in one layer.
struct LayerCalls {
  double forward = 0;
  double repeated = 0;  ///< In the backward, by recomputation.
  double backward = 0;

  double all() const { return forward + repeated + backward; }
};

/// An operation that is to be timed: forward and backward together, or one call of a recorded one.
struct Operation {
  OperationKind kind = OperationKind::kRecorded;
  std::string name = {};
  int64_t samples = 1;
  int64_t rows = 1;      ///< Of a sample.
  int64_t columns = 1;   ///< Of a row of the result.
  int64_t inner = 1;     ///< Terms of a product's sums; heads of attention; rows of an embedding.
  int64_t kv_heads = 0;  ///< Of attention, heads of keys and values; 0: as many as `inner`.
  int ring_ranks = 1;    ///< Of attention, a ring that has the rows: what one of them computes.
  double count = 1;      ///< Calls of a forward and backward.
  double estimate = 0;   ///< Seconds of one call: what is timed first, and for how long.
  size_t index = 0;      ///< Of a recorded one, in the list of its maker.
  /// Of a recorded one, by layer, `count` together: as many as the model has layers.
  std::vector<LayerCalls> layers = {};
  bool is_product = false;  ///< Whether a recorded one multiplies matrices.
};

/// Seconds of so many floating operations and bytes read and written, on a modest core.
constexpr double estimated_seconds(double flops, double bytes) {
  return flops / 100e9 + bytes / 10e9;
}

/// Of one call; as TimedOperation. 0: it could not be timed.
struct CallSeconds {
  double seconds = 0;
  double forward = 0;
  double launch = 0;
};

/// Times operations in turn, all of them again and again, for about so many seconds.
using TimeInTurn =
    std::function<std::vector<CallSeconds>(const std::vector<Operation>& chosen, double seconds)>;

/// Times the operations that have the largest parts of a step and fit into `budget_seconds` a few times.
///
/// Result  all of them: what the budget left out is priced by the nearest timed one of its kind
///         (else of any), in proportion to the estimates; by its estimate where nothing was timed.
std::vector<TimedOperation> time_operations(std::vector<Operation> operations,
                                            double budget_seconds, const TimeInTurn& time);

/// Prices the operations of a job by those of a smaller one, of which `timed` are the seconds: in proportion to the
/// estimates, the i-th of an operator (the first word of a name) by the i-th of the smaller job where both have as
/// many, else by its nearest; by the nearest of all where it has none. Never by none: `small` is not empty.
std::vector<TimedOperation> scale_times(const std::vector<Operation>& operations,
                                        const std::vector<Operation>& small,
                                        const std::vector<TimedOperation>& timed);

}  // namespace hanji::plan
