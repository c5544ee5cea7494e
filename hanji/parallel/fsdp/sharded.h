#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/scratch_file.h"
#include "hanji/comm/group.h"
#include "hanji/layout/unit.h"
#include "hanji/lens/deferred.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/fsdp/mixed_precision.h"
#include "hanji/parallel/grain_part.h"

namespace torch::optim {
class Optimizer;
}

namespace hanji::parallel {

/// What of a rank's shards lies in a file instead of memory, for models that memory does not hold.
struct ShardOffload {
  bool parameters = true;  ///< Read when a unit is gathered: fully_shard() without shared memory.
  bool gradients = true;   ///< Written behind the backward; not with stable bits.
  std::filesystem::path folder;  ///< Of a local disk with room for both.
  /// Shards in memory that are read ahead or written behind; each as large as the largest; >= 2.
  int num_windows = 3;
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  ///< Of a wait for the disk.
  base::ScratchEngine engine = base::ScratchEngine::kAuto;
  const base::Log* log = nullptr;  ///< Told if the kernel refuses io_uring.
};

/// What all ways of sharding have in common.
struct ShardingOptions {
  Average average = Average::kMean;
  /// Ranks that have the same shard as this one: shards are cut over the group and kept alike over
  /// these (hybrid sharding). On a mesh: the group is one axis and `replicas` another.
  std::optional<comm::Group> replicas = {};
  /// On one host parameters lie once in the heap of its ranks. False: each rank has its own, as on
  /// several hosts.
  bool share_memory = true;
  /// With share_memory = false in memory that ranks share: shards lie side by side in the first rank's
  /// part of it, so that whole_parameters() can be read between steps.
  bool shards_together = false;
  /// Units whose gradients lie whole at one time, or whose parameters do ahead of their use.
  int max_units_in_flight = 2;
  /// Stable bits, as in DataParallelOptions: the gradients do not depend on ranks, owners or units.
  int64_t num_grains = 0;
  std::vector<layout::Range> owners = {};
  /// As in DataParallelOptions.
  std::vector<GrainPart> parts = {};
  /// Parameters that ranks outside of the group have too (weights that stages of a pipeline tie): each is
  /// a unit of its own, so that equal shards of all copies can be summed.
  std::vector<at::Tensor> alone = {};
  /// Stable with `replicas` only: the ranks of all groups, whose grains the owners share out.
  std::optional<comm::Group> everyone = {};
  /// What the parameters and buffers of a module that hanji::deferred() built will hold; they have no
  /// memory yet, and get it on `device`.
  std::optional<lens::InitialValues> initial = {};
  c10::Device device = c10::kCPU;
  /// Other dtypes to compute and to sum in than those of the module, the same on every rank.
  MixedPrecisionPolicy precision = {};
  /// Then offloaded() of flat_parts() is the optimizer.
  std::optional<ShardOffload> offload = {};
};

/// A piece of a parameter that this rank owns.
struct Shard {
  std::string name;  ///< Of the parameter.
  at::Tensor
      tensor;  ///< A leaf that shares the parameter's memory where that is whole, of its dtype.
  layout::Range elements;      ///< Of the parameter, in row-major order.
  std::vector<int64_t> sizes;  ///< Of the parameter.
};

class ShardedModel;

/// Handle to a module whose optimizer, gradients or parameters are sharded over a group.
///
/// If the module changes, so that a parameter that was frozen requires a gradient, or one is new in it,
/// backward() throws kInvalidArgument on every rank, naming it; step() too. One that is frozen later counts
/// as unused.
///
/// Move-only. It must not outlive the module, whose parameters are usable after it only where they
/// lay whole somewhere; they are then this rank's own. Thread: every call from the thread that runs
/// backward().
class Sharded {
 public:
  explicit Sharded(std::shared_ptr<ShardedModel> model);
  Sharded(Sharded&&) noexcept;
  Sharded& operator=(Sharded&&) noexcept;
  ~Sharded();

  /// This rank's shards of what learns, for an optimizer: each has its share of the gradients in
  /// `.grad` when backward() returns. Those of whole parameters have the parameter's sizes, pieces
  /// of matrices [1, n], other pieces [n]: the optimizer must treat elements alike. `.grad` of the
  /// module's own parameters throws then, naming them, until zero_grad() or the next backward().
  std::vector<at::Tensor> parameters() const;
  /// The same with names and places; frozen parameters of sharded units too.
  std::vector<Shard> shards() const;

  /// optimizer.step() on the shards of all ranks; the module's parameters are those after it.
  ///
  /// Order   a collective: every rank calls it, outside of any backward().
  /// Cost    on one host two barriers; else an all_gather of the parameters, at once or, with
  ///         fully_shard(), unit by unit when they are used.
  /// Errors  throws kInvalidArgument, naming the parameter, if the optimizer holds any that is not
  ///         of parameters(), such as one made before sharding; and as FullParameters for parameters
  ///         that were written or whose memory was replaced.
  void step(torch::optim::Optimizer& optimizer);
  /// The same with any update of parameters() in place.
  void step(const std::function<void()>& update);

  /// The norm of all gradients together; scales them so that it is at most `max_norm`. A collective.
  ///
  /// Result  on the CPU the bits of clip_grad_norm() of one process that has all of them. Nothing
  ///         is scaled where the norm is not finite.
  double clip_grad_norm(double max_norm);

  /// Forgets the gradients of all shards, wherever they lie: the next backward() does not add to them.
  void zero_grad();
  /// Calls `visit` with the gradient of each of this rank's shards that has one, in the order of
  /// parameters(); it may change them in place. Of those in a file a unit at a time is in memory:
  /// LossScaler::unscale_each() takes this.
  void for_each_gradient(const std::function<void(const at::Tensor&)>& visit);

  /// While the guard lives, backward() only accumulates: whole gradients stay on each rank until a
  /// backward() without it. Without the guard every backward() reduces and adds to the shards' own.
  class [[nodiscard]] Accumulation {
   public:
    explicit Accumulation(ShardedModel& model);
    Accumulation(const Accumulation&) = delete;
    Accumulation& operator=(const Accumulation&) = delete;
    ~Accumulation();

   private:
    ShardedModel& model_;
  };
  /// Errors  throws kInvalidArgument in stable, where grain() says what belongs together.
  Accumulation accumulate();

  /// While it lives, the module's parameters are whole and can be read and written on every rank, which
  /// sees its own writes only; then each rank's share of what it has written becomes its shard. All
  /// ranks write the same. For generation, evaluation outside the units, and loading a checkpoint
  /// that is not sharded. With a precision policy they are the masters, in their own dtype, and calls
  /// of units cast nothing. Scopes within a scope are part of it.
  ///
  /// Parameters whose memory is replaced meanwhile (torch::load(), vector_to_parameters(), set_data())
  /// have been written; they have the handle's memory again at the end.
  ///
  /// Order   its begin and its end are collectives; no backward() and no step() in between.
  /// Cost    where ranks share memory the pages that a rank writes; else with shard_optimizer() an
  ///         all_gather at its end, with fully_shard() at its begin. With a param_dtype also memory for
  ///         all parameters in their own dtype, once on a host where memory is shared, and else an
  ///         all_gather of them.
  /// Errors  throws kInvalidArgument, naming the parameters: its end for memory of another dtype, size or
  ///         device, until the handle ends; its begin, backward() and step() also for writes outside of
  ///         a scope to parameters that ranks share or that have masters, as far as torch counts them
  ///         (not those through Tensor::data()), and with fully_shard() for memory that was replaced
  ///         outside of one. With shard_optimizer() step() takes that, as a scope does.
  class [[nodiscard]] FullParameters {
   public:
    explicit FullParameters(std::shared_ptr<ShardedModel> model);
    FullParameters(const FullParameters&) = delete;
    FullParameters& operator=(const FullParameters&) = delete;
    ~FullParameters() noexcept(false);

   private:
    std::shared_ptr<ShardedModel> model_;
    int exceptions_;
  };
  FullParameters full_parameters();

  /// Of a layers::Model with UnitCalls::kLayers: the units that these layers read stay whole from here to
  /// the reshard() of the same layers, whatever is computed meanwhile. Ranges may overlap in units.
  ///
  /// Order   where units are gathered a collective, of those that are not whole.
  void unshard(layout::Range layers);
  void reshard(layout::Range layers);

  /// As Replicas::grain(), Replicas::grains(), Replicas::finish() and Replicas::set_weight().
  void grain(int64_t index, size_t part = 0);
  layout::Range grains() const;
  void finish();
  void set_weight(double weight);

  /// Parameters and gradients of this rank's shards, a part for each unit that learns: for
  /// optimizer_of_parts() or offloaded(). Pieces are those of shards() that learn, in their order.
  /// Errors  throws kUnsupported for parameters of several dtypes.
  std::vector<FlatPart> flat_parts(const GroupRule& rule = decay_matrices()) const;

  /// Where the next gradient of each parameter that learns goes, in order of registration; backward
  /// may write it there in the first place. Undefined where that is not known before the gradient
  /// is there, such as after a backward() that only accumulates. grain() changes it. They have the
  /// dtype of sums (precision.reduce_dtype).
  std::vector<at::Tensor> gradient_slots() const;

  /// In stable, the sums that the last backward() of a step has left on every rank, whole, in order of
  /// registration; until the next backward(). Empty where bits are not stable.
  std::vector<at::Tensor> whole_sums() const;

 private:
  friend ShardedModel& model_of(const Sharded& sharded);

  std::shared_ptr<ShardedModel> model_;
};

}  // namespace hanji::parallel
