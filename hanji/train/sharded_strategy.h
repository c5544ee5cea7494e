#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hanji/mesh/mesh.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/train/strategy.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

struct ShardedOptions {
  int groups =
      1;  ///< Of consecutive ranks; each group shards the whole state, groups replicate it.
  bool shards_parameters = false;  ///< By fully_shard(), with the model's layers as units.
  /// Without replicas, which follow from `groups`. With parts, the model is in stages. If ranks of a group
  /// lie on several hosts, neither share_memory nor shards_together.
  parallel::ShardingOptions sharding;
  parallel::WholeGradients whole_gradients = parallel::WholeGradients::kFreed;
  int64_t unit_bytes = 25 << 20;
  parallel::MakeOptimizer make_optimizer;
  parallel::GroupRule rule;
  /// Whether the norm counts a parameter; empty: it does.
  std::function<bool(const at::Tensor&)> counts = {};
};

/// Shards state over the ranks of a group; groups are replicas ("hsdp"), also over hosts. "zero1" and
/// "zero2" are parallel::shard_optimizer(), "zero3" and "hsdp" fully_shard(). The ranks of a group that
/// lies on one host share one copy of parameters and moments, in the heap of its first rank, and each
/// updates its shards in place, so unsharding a layer needs no communication. Without share_memory and
/// shards_together, as over several hosts, each rank has its shards and their moments for itself: layers
/// are gathered, or with "zero1" and "zero2" the parameters after each update.
class ShardedStrategy : public Strategy {
 public:
  /// Order   collective.
  /// Errors  throws what shard_optimizer() and fully_shard() throw.
  ShardedStrategy(layers::Model& model, const comm::Group& group, const ShardedOptions& options);

  const std::vector<parallel::NamedParameter>& parameters() const override { return parameters_; }
  std::vector<layers::LayerScope> scopes() const override;
  void unshard(layout::Range layers) override;
  void reshard(layout::Range layers) override;
  void begin_step() override;
  void begin_grain(int64_t index, size_t stage) override;
  void add_gradient(size_t parameter, const at::Tensor& more) override;
  void accumulate(const std::function<void()>& backward) override;
  void sum_tied(const parallel::TiedParameters& tied) override;
  double gradient_norm() override;
  void update(double learning_rate, double gradient_divisor) override;
  FlatState state() const override;
  void set_num_updates(int64_t updates) override { optimizer_->set_num_updates(updates); }
  OwnState own_state() const override;
  const comm::Group* holders() const override;
  const comm::Group* sharers() const override;
  std::vector<at::Tensor> gradients() override;
  comm::Stats stats() const override;

 private:
  void lay_out();
  std::vector<parallel::NamedParameter> parameters_where_they_lie() const;
  void set_slots();
  void make_optimizer(const ShardedOptions& options);
  void make_moments(const std::vector<parallel::FlatPart>& parts);
  HeldRange held_range(const parallel::FlatPart& part, const parallel::FlatPiece& piece,
                       int64_t of_moments) const;
  const comm::Group& own_group() const { return mesh_ ? (*mesh_)["fsdp"] : group_; }

  layers::Model& model_;
  comm::Group group_;
  bool in_stages_, shards_parameters_;
  std::optional<mesh::Mesh> mesh_;  ///< If there are several groups.
  std::vector<parallel::NamedParameter> parameters_;
  std::set<std::string> uncounted_;  ///< Parameters whose gradients another stage's rank counts.
  ModelSlots slots_;
  parallel::Sharded sharded_;
  bool shares_memory_;  ///< Those of own_group() have one state together.
  std::vector<parallel::NamedParameter>
      whole_;                  ///< The parameters, where they lie once, if they do.
  layout::FlatLayout layout_;  ///< Unit by unit, so that a rank's shard of one is a range.
  std::vector<at::Tensor> shards_;
  std::vector<layout::Range> own_;  ///< Where they lie in the layout.
  std::vector<HeldRange> held_;     ///< The same, unless ranks share memory.
  std::vector<std::string> names_;  ///< Of the optimizer's moments.
  at::Tensor
      moments_;  ///< [names, layout_.count], shared by the ranks of a group; or of own shards.
  std::unique_ptr<parallel::FlatOptimizer> optimizer_;
};

}  // namespace hanji::train
