#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/bucket.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/ddp/communication_hook.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::schedule {
struct GrainTree;
}

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

struct DataParallelOptions {
  Average average = Average::kMean;
  int64_t bucket_bytes = 25 << 20;
  /// Small, so that communication starts early; at most bucket_bytes in any case.
  int64_t first_bucket_bytes = 1 << 20;
  int64_t check_every = 0;  ///< Steps between hash checks of the parameters; 0: at start only.
  /// Stable bits: the global batch is this many grains, and every backward() is one of them, told
  /// by Replicas::grain(). The gradients then do not depend on how many ranks there are, on who
  /// owns which grain, or on buckets. 0: sums over ranks, one backward() each.
  int64_t num_grains = 0;
  /// Which grains each rank owns: contiguous, in rank order. Empty: even shares.
  std::vector<layout::Range> owners = {};
  /// How a bucket becomes one over the ranks, e.g. bf16_hook(); empty: all_reduce of all its bits.
  CommunicationHook hook = {};
  /// Gradients are kept, accumulated and reduced in this dtype, e.g. float32 for bfloat16 parameters.
  /// Where it is not that of the parameters their `.grad` is empty after backward():
  /// flat_gradients() and gradient_slots() have them, for an optimizer of MasterWeights.
  std::optional<at::ScalarType> gradient_dtype = {};
  /// The first backward() that communicates shows which parameters a rank uses; from then on the
  /// ranks no longer tell each other, and another set is an error.
  bool static_order = false;
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
  /// Errors  throws kInvalidArgument in stable, where grain() says what belongs together.
  Accumulation accumulate();

  /// Stable: the backward() that follows is grain `index` of the global batch. Gradients are
  /// cleared before it and added up by schedule::grain_tree() after it; those of the whole batch are
  /// there when the backward() of the rank's last grain returns.
  ///
  /// Order   every rank calls it for its own grains, in order, one backward() each.
  /// Cost    one addition of all gradients per grain but the first, as accumulation has.
  /// Errors  throws kInvalidArgument for any other index, naming the one that is due.
  void grain(int64_t index);
  /// Stable: this rank's grains; else empty.
  layout::Range grains() const;
  /// Stable: who owns which grain, and the order of every sum. Throws kInvalidArgument otherwise.
  const schedule::GrainTree& grain_tree() const;

  /// For a rank (in stable: a grain) whose backward touched no parameter at all: takes part with
  /// zeros. Also for a rank that owns no grain.
  void finish();
  /// This rank's weight for the next reduction (Average::kWeighted only).
  void set_weight(double weight);

  /// Uneven data: called before each step by every rank, with how much it has for this step (tokens,
  /// samples), 0 once it has no more. A rank without data takes part in the step's reduction here.
  ///
  ///   while (replicas.join(batch ? batch->num_tokens : 0)) {
  ///     if (batch) loss(*batch).backward();
  ///     optimizer.step();  // all ranks, the same update
  ///     batch = next();
  ///   }
  ///
  /// Result  false on every rank once none has data. Gradients of the step are exact by weight:
  ///         kWeighted takes losses that are means over the rank's weight, kSum takes sums; both end
  ///         as sum over all tokens / all tokens. With accumulate(): the weight of the whole step, and
  ///         kSum.
  /// Order   every rank, until false; between, a rank with data runs its backward().
  /// Cost    an all_reduce of 8 bytes.
  /// Errors  throws kInvalidArgument for a negative weight; kUnsupported with kMean, and in stable,
  ///         where grains say who has what.
  bool join(double weight);
  /// Copies rank 0's buffers (running statistics) to all ranks.
  void broadcast_buffers();
  /// Compares a hash of every parameter over the ranks.
  /// Errors  throws kMismatch on every rank, naming the first tensor and the ranks that differ.
  void check_parameters();

  /// The distinct parameters that learn, in the order of module.named_parameters().
  const std::vector<NamedParameter>& parameters() const;
  /// All gradients, parameter i at buckets().flat.offsets[i]; padding is zero.
  at::Tensor flat_gradients() const;
  /// Where the next gradient of parameter i goes; backward may write it there in the first place.
  /// In stable grain() changes it; else it is always the same.
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
///         Stable: one tree_all_reduce per bucket instead, 2 log2(grains) gradient buffers at most.
/// Errors  throws kMismatch if names, shapes or dtypes differ between ranks, kInvalidArgument if
///         nothing requires a gradient, another handle trains a parameter, or owners do not fit the
///         grains (all that is wrong with the module at once, by name, on all ranks);
///         kUnsupported for stable with kWeighted, with a hook, or with gradients of 16 bits, and
///         for a hook with gradients of 16 bits. With static_order backward() throws
///         kInvalidArgument on the rank whose parameters are not those of its first.
/// Thread  the group belongs to the calling thread.
/// Source  Li et al., PyTorch Distributed, VLDB 2020, section 3.2.
Replicas data_parallel(torch::nn::Module& module, const comm::Group& group,
                       const DataParallelOptions& options = {});

}  // namespace hanji::parallel
