#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layers/flow.h"
#include "hanji/layout/placement.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/pipeline/stages.h"
#include "hanji/plan/memory.h"
#include "hanji/train/observe.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// What of a state that a rank's group has together is this rank's: ranges of the state's layout.
struct OwnState {
  std::vector<layout::Range> parameters, moments;  ///< The rest lies in memory that others fill.
  /// Of a checkpoint, to which it adds the moments' ranges and the parameters there; none where
  /// another rank saves the same.
  std::optional<int> part = 0;
  int num_parts = 1;
};

/// Whether a parameter's gradient is counted on this rank in what is summed over `cut`: its own parts,
/// and on the first rank what all have.
bool is_counted(const layout::Cut& cut, std::string_view parameter);

/// Gradient slots of those parameters of a model that learn here, as layers::Model takes them: of each of
/// its parameters, undefined for others.
class ModelSlots {
 public:
  ModelSlots(layers::Model& model, const std::vector<parallel::NamedParameter>& learning);
  void set(const std::vector<at::Tensor>& slots);

  /// Model::rounded_parameters() of those that learn; empty: none.
  std::vector<bool> rounded() const;
  /// Model::set_rounded_parameters() of those; empty: none.
  void set_rounded(const std::vector<at::Tensor>& rounded);

 private:
  /// By parameter of the model.
  std::vector<at::Tensor> placed(const std::vector<at::Tensor>& learning) const;

  layers::Model& model_;
  std::vector<std::optional<size_t>> places_;  ///< Of each parameter of the model among those.
};

/// The norm of gradients of which each rank of `group` has pieces, some of them undefined. Collective.
double norm_of_pieces(const std::vector<at::Tensor>& pieces, const comm::Group& group);

/// Who keeps what of a job's parameters, gradients and optimizer, and how the gradients of all ranks
/// become an update: plan.config.parallel.data, carried out among one rank of each data coordinate.
///
/// Order   ranks call the members in the same order; those that say so are collectives.
/// Errors  throws what backward and Work::wait() throw.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// What learns, whole and in order of registration.
  virtual const std::vector<parallel::NamedParameter>& parameters() const = 0;

  /// Around each layer wherever the model runs, within those of training.
  virtual std::vector<layers::LayerScope> scopes() const { return {}; }

  /// What these layers read is whole on this rank from here to reshard(). Collective.
  virtual void unshard(layout::Range /*layers*/) {}
  virtual void reshard(layout::Range /*layers*/) {}

  /// Before the first backward() of a step: nothing is left of the gradients of the last one.
  virtual void begin_step() = 0;
  /// Stable: the forward and backward that follow are this grain's; of several stages the backward, in
  /// this stage.
  virtual void begin_grain(int64_t index, size_t stage = 0) = 0;
  /// Runs a backward() whose gradients this rank only adds up, until one outside comes.
  virtual void accumulate(const std::function<void()>& backward) = 0;
  /// Stable: adds to the sum of a step's gradients of a parameter, whole and the same on all ranks; after
  /// the last backward and before the norm.
  virtual void add_gradient(size_t parameter, const at::Tensor& more) = 0;
  /// Adds up the gradients of weights that several stages read, over the ranks that have copies; after
  /// add_gradient(). Collective.
  virtual void sum_tied(const parallel::TiedParameters& tied) = 0;
  /// Of the sum of all gradients of a step that this rank counts (is_counted()). Collective.
  virtual double gradient_norm() = 0;
  /// One update with the gradients divided by `gradient_divisor`. Collective.
  virtual void update(double learning_rate, double gradient_divisor) = 0;

  /// Bytes of the parameters that update() has rounded for the products of the next forward.
  virtual int64_t rounded_bytes() const { return 0; }
  /// Takes them back: of a step only the first forward finds them, as others would keep them for longer.
  virtual void drop_rounded() {}

  /// The optimizer's state, whole, as a checkpoint has it; its gradients are undefined. Between two
  /// updates, what is written to parameters and moments, the same on all ranks, is the job's state.
  virtual FlatState state() const = 0;
  virtual void set_num_updates(int64_t updates) = 0;
  /// What of that this rank fills and saves; nobody else changes what it saves.
  virtual OwnState own_state() const = 0;
  /// Ranks that each have a copy of that state, the first data coordinate's first; null on a rank
  /// whose copy another one of its host writes.
  virtual const comm::Group* holders() const = 0;
  /// Ranks that hold that state in shards which no other rank can read (FlatState::held), such as those of
  /// several hosts; null: it is whole in memory that this rank reads.
  virtual const comm::Group* sharers() const { return nullptr; }
  /// The sum of all gradients, by parameter. Collective. Cost: for stable bits it lies on every rank of
  /// all strategies but parameter servers; else sharded sums are gathered.
  virtual std::vector<at::Tensor> gradients() = 0;
  /// Throws kMismatch where ranks that should have the same parameters have not. Collective.
  virtual void check_parameters() {}

  /// Of all groups that it moves bytes over, that of the data coordinates too.
  virtual comm::Stats stats() const = 0;
  /// States that lie outside the heap, by what they are for.
  virtual std::vector<plan::MemoryLine> private_memory() const { return {}; }
  /// Of these, what libtorch did not allocate: windows of files.
  virtual int64_t window_bytes() const { return 0; }
};

}  // namespace hanji::train
