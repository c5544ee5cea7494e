#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/bucket.h"
#include "hanji/parallel/named_parameter.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// How the gradients of the ranks become one.
enum class Average : uint8_t {
  kMean,      ///< Sum over ranks divided by their number: right when every rank's loss is a mean.
  kSum,       ///< The plain sum: right when losses are sums, divided once by the caller.
  kWeighted,  ///< sum(weight * gradient) / sum(weight), see Replicas::set_weight().
};

struct DataParallelOptions {
  Average average = Average::kMean;
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;  ///< Small, so that communication starts early.
  int64_t check_every = 0;  ///< Steps between hash checks of the parameters; 0: at start only.
};

class Reducer;

/// The replicas' bond: while it lives, gradients are reduced when backward() returns.
///
/// Move-only; the destructor takes the hooks off the parameters. It must not outlive the module.
/// Thread  every call from the thread that runs backward().
class Replicas {
 public:
  explicit Replicas(std::unique_ptr<Reducer> reducer);
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;
  ~Replicas();

  /// While the guard lives, backward() only accumulates (all micro-batches but the last).
  class [[nodiscard]] Accumulation {
   public:
    explicit Accumulation(Reducer& reducer);
    Accumulation(const Accumulation&) = delete;
    Accumulation& operator=(const Accumulation&) = delete;
    ~Accumulation();

   private:
    Reducer& reducer_;
  };
  Accumulation accumulate();

  /// For a rank whose backward touched no parameter at all: takes part with zeros.
  void finish();
  /// This rank's weight for the next reduction (Average::kWeighted only).
  void set_weight(double weight);
  /// Copies rank 0's buffers (running statistics) to all ranks.
  void broadcast_buffers();
  /// Compares a hash of every parameter over the ranks.
  /// Errors  throws kMismatch on every rank, naming the first tensor and the ranks that differ.
  void check_parameters();

  /// The distinct parameters that learn, in the order of module.named_parameters().
  const std::vector<NamedParameter>& parameters() const;
  /// All gradients, parameter i at buckets().flat.offsets[i]; padding is zero.
  at::Tensor flat_gradients() const;
  /// Where the reduced gradient of parameter i lands; backward may write it there in the first place.
  std::vector<at::Tensor> gradient_slots() const;
  /// Which parameters travel together, by their index in parameters().
  const layout::BucketPlan& buckets() const;

 private:
  std::unique_ptr<Reducer> reducer_;
};

/// Makes `module` the same on all ranks of `group` and keeps it so: parameters and buffers are
/// broadcast from rank 0, and every backward() ends with gradients reduced over the ranks while
/// it still computes. Gradients are averaged by default (Average::kMean).
///
/// Shape   any; strides too. A sparse gradient is densified into its bucket.
/// Order   all ranks call this and every later backward() of the module in the same order; buckets
///         start in the order of rank 0's plan, whatever the order of a rank's own hooks.
/// Cost    one all_reduce per bucket, 2 * ranks * parameter bytes of memory traffic in all, and one
///         of a byte per parameter that tells which were used.
/// Errors  throws kMismatch if names, shapes or dtypes differ between ranks (the first is named),
///         kInvalidArgument if nothing requires a gradient.
/// Thread  the group belongs to the calling thread.
/// Source  Li et al., PyTorch Distributed, VLDB 2020, section 3.2.
Replicas data_parallel(torch::nn::Module& module, const comm::Group& group,
                       const DataParallelOptions& options = {});

}  // namespace hanji::parallel
