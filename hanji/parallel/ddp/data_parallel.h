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
#include "hanji/parallel/grain_part.h"
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
  /// Small, so that communication starts early; at most bucket_bytes.
  int64_t first_bucket_bytes = 1 << 20;
  int64_t check_every = 0;  ///< Steps between hash checks of the parameters; 0: at start only.
  /// Stable bits: the number of grains of the global batch. Every backward() is one grain, selected
  /// by Replicas::grain(). The gradients then do not depend on the number of ranks, the owners of
  /// grains, or buckets. 0: sums over ranks, one backward() each.
  int64_t num_grains = 0;
  /// The grains of each rank: contiguous, in rank order. Empty: even shares.
  std::vector<layout::Range> owners = {};
  /// If several backward() outside accumulate() complete a step (stages of a pipeline): what each
  /// reaches. A bucket leaves in the last of those that reach it; for stable bits a backward() is one
  /// grain of one part, and each parameter is in the first part that has it. Empty: one part of all.
  std::vector<GrainPart> parts = {};
  /// Reduces a bucket over the ranks, e.g. bf16_hook(); empty: all_reduce without compression.
  CommunicationHook hook = {};
  /// Gradients are kept, accumulated and reduced in this dtype, e.g. float32 for bfloat16 parameters.
  /// If it differs from that of the parameters, their `.grad` is empty after backward():
  /// flat_gradients() and gradient_slots() have them, for an optimizer of MasterWeights.
  std::optional<at::ScalarType> gradient_dtype = {};
  /// The first backward() that communicates determines the parameters that a rank uses; later steps
  /// do not exchange them, and another set is an error.
  bool static_order = false;
};

class Reducer;

/// Handle to a replicated module: during its lifetime, gradients are reduced when backward() returns.
///
/// Move-only; the destructor removes the hooks from the parameters. It must not outlive the module.
/// Thread  every call from the thread that runs backward().
class Replicas {
 public:
  explicit Replicas(std::unique_ptr<Reducer> reducer);
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;
  ~Replicas();

  /// During the lifetime of the guard, backward() only accumulates (all micro-batches but the last).
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

  /// Stable bits: the next backward() is grain `index` of the global batch. Gradients are cleared
  /// before it and summed by schedule::grain_tree() after it; those of the whole batch are complete
  /// when the backward() of the rank's last grain returns.
  ///
  /// `part`: of DataParallelOptions::parts; nothing for one without parameters.
  /// Order   every rank calls it for its own grains, in order, one backward() each.
  /// Cost    one addition of all gradients per grain but the first, as in accumulation.
  /// Errors  throws kInvalidArgument for another index, naming the expected one.
  void grain(int64_t index, size_t part = 0);
  /// Stable bits: this rank's grains; else empty.
  layout::Range grains() const;
  /// Stable bits: the owners of grains and the order of sums. Throws kInvalidArgument otherwise.
  const schedule::GrainTree& grain_tree() const;

  /// For a rank (with stable bits: a grain) whose backward used no parameter: contributes zeros. Also
  /// for a rank without grains.
  void finish();
  /// This rank's weight for the next reduction (Average::kWeighted only).
  void set_weight(double weight);

  /// Uneven data: every rank calls it before each step with its amount of data for this step (tokens,
  /// samples), or 0 at the end of its data. A rank without data takes part in the step's reduction
  /// here.
  ///
  ///   while (replicas.join(batch ? batch->num_tokens : 0)) {
  ///     if (batch) loss(*batch).backward();
  ///     optimizer.step();  // all ranks, the same update
  ///     batch = next();
  ///   }
  ///
  /// Result  false on every rank if none has data. Gradients of the step are exact by weight:
  ///         kWeighted takes losses that are means over the rank's weight, kSum takes sums; both end
  ///         as sum over all tokens / all tokens. With accumulate(): the weight of the whole step, and
  ///         kSum.
  /// Order   every rank, until false; between, a rank with data runs its backward().
  /// Cost    an all_reduce of 8 bytes.
  /// Errors  throws kInvalidArgument for a negative weight; kUnsupported with kMean and with
  ///         stable bits.
  bool join(double weight);
  /// Copies rank 0's buffers (running statistics), those that the module has now, to all ranks.
  void broadcast_buffers();
  /// Compares a hash of every parameter over the ranks, frozen ones too.
  /// Errors  throws kMismatch on every rank, naming the first tensor and the ranks that differ, and
  ///         what data_parallel() says of modules that have changed.
  void check_parameters();

  /// The distinct trainable parameters, in the order of module.named_parameters().
  const std::vector<NamedParameter>& parameters() const;
  /// All gradients, parameter i at buckets().flat.offsets[i]; padding is zero.
  at::Tensor flat_gradients() const;
  /// The place of the next gradient of parameter i; backward may write to it directly. With stable
  /// bits, grain() changes it; else it is constant.
  std::vector<at::Tensor> gradient_slots() const;
  /// The parameters of each bucket, by their index in parameters().
  const layout::BucketPlan& buckets() const;

 private:
  std::unique_ptr<Reducer> reducer_;
};

/// Replicates `module` on all ranks of `group`: parameters, frozen ones too, and buffers are broadcast
/// from rank 0, and every backward() reduces gradients over the ranks during its computation. Gradients are averaged by
/// default (Average::kMean).
///
/// Shape   any; strides too. A sparse gradient is densified into its bucket.
/// Order   all ranks call this and every later backward() of the module in the same order; buckets
///         start in the order of rank 0's plan, for any order of a rank's own hooks.
/// Cost    one all_reduce per bucket, 2 * ranks * parameter bytes of memory traffic in all, and one
///         of a byte per parameter for the used parameters.
///         Stable: one tree_all_reduce per bucket instead, 2 log2(grains) gradient buffers at most.
/// Errors  throws kMismatch if names, shapes, dtypes or what requires a gradient differ between ranks,
///         kInvalidArgument if nothing requires a gradient, another handle trains a parameter, or
///         owners do not fit the grains (all mistakes of the module at once, by name, on all ranks);
///         kUnsupported for parameters that are not dense or not of one real floating dtype, for stable bits with kWeighted, with a hook, or with gradients of 16 bits,
///         and for a hook with gradients of 16 bits. With static_order backward() throws
///         kInvalidArgument on the rank whose parameters are not those of its first.
///         Later, backward(), finish(), join() and check_parameters() throw kInvalidArgument on every
///         rank, naming the parameters, if on any rank one that was frozen requires a gradient, one
///         is new in the module, or one has another dtype, shape or device; with static_order on that
///         rank only. One that is frozen later counts as unused. backward() with create_graph throws
///         kUnsupported.
/// Thread  the group belongs to the calling thread.
/// Source  Li et al., PyTorch Distributed, VLDB 2020, section 3.2.
Replicas data_parallel(torch::nn::Module& module, const comm::Group& group,
                       const DataParallelOptions& options = {});
/// The same for gradients of leaves whose values count for nothing (TiedUse): these are not compared.
Replicas data_parallel(std::vector<NamedParameter> leaves, const comm::Group& group,
                       const DataParallelOptions& options);

}  // namespace hanji::parallel
