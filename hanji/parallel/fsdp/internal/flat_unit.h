#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "hanji/lens/deferred.h"
#include "hanji/parallel/fsdp/internal/unit_memory.h"
#include "hanji/parallel/placed_tensors.h"

namespace hanji::parallel {

class ShardedModel;

/// This rank's part of one parameter, as the optimizer sees it.
struct Leaf {
  size_t position = 0;     ///< In the unit.
  layout::Range elements;  ///< Of the parameter.
  int64_t offset = 0;      ///< In this rank's shard of the unit.
  at::Tensor tensor;
};

/// A copy of what of a whole value, shaped like the parameter, is this rank's.
at::Tensor piece_of(const at::Tensor& whole, const Leaf& leaf);

/// The parameters of one unit in its memory: they keep their TensorImpl and get a storage of their
/// own, so that views which autograd has saved follow it. While a unit is resharded, reading the data
/// of its parameters throws, naming them.
class FlatUnit {
 public:
  /// Takes the values that the parameters have, or of those without memory will have (`initial`):
  /// this rank's only, never a whole parameter. They must be the same on all ranks of the group.
  FlatUnit(UnitPart part, const Home& home, const lens::InitialValues* initial);
  /// The parameters keep their values where these lie whole, in memory that is this rank's alone.
  ~FlatUnit();
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;

  /// Points the parameters here. They can be read where they are always whole, else not.
  void adopt(const std::weak_ptr<ShardedModel>& model, size_t index);

  const UnitPart& part() const { return part_; }
  UnitMemory& memory() const { return *memory_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  /// By leaf: its part of what is as long as the shard, shaped like it.
  std::vector<at::Tensor> by_leaf(const at::Tensor& shard) const;
  /// The whole parameters do not show what is written to the shard.
  bool keeps_apart() const { return part_.is_mixed() || memory_->is_gathered(); }

  /// After it the parameters are whole and can be read.
  void unshard();
  void reshard();
  /// The same between forward and backward.
  void reshard_after_forward();
  bool is_unsharded() const { return unsharded_; }

  /// Mixed: the masters of all ranks come together; show_own() after all ranks have begun.
  void begin_masters();
  /// The module's parameters are ordinary ones, mixed: the masters in their own dtype, that other ranks do
  /// not see written, until write_back().
  void show_own();
  /// What this rank has of the whole parameters as they were written becomes its shard.
  void write_back();

  /// The module's parameters in the memory that this has given them, and this rank's shards of them.
  const PlacedTensors& placed() const { return placed_; }
  const PlacedTensors& placed_leaves() const { return placed_leaves_; }
  /// What of replaced parameters that are whole is this rank's becomes its shard; they have their memory
  /// again. None of them are misfits.
  void take_replaced();
  /// The same of the shards' tensors.
  void take_replaced_leaves();

 private:
  void make_leaves(const lens::InitialValues* initial);
  void fill(const Leaf& leaf, const lens::InitialValues* initial) const;
  c10::DataPtr held(void* data, at::Tensor memory) const;
  void point_at(const at::Tensor& whole);
  void allow_reads() const;
  void refuse_reads();
  void show_masters();
  void hide_masters();
  void take_replaced(const at::Tensor& own);
  void leave_shared_memory();

  UnitPart part_;
  std::unique_ptr<UnitMemory> memory_;
  std::weak_ptr<ShardedModel> model_;
  size_t index_ = 0;  ///< Among the model's units.
  std::vector<Leaf> leaves_;
  PlacedTensors placed_;         ///< The parameters, by position.
  PlacedTensors placed_leaves_;  ///< By leaf.
  at::Tensor masters_;
  at::Tensor
      shown_;  ///< What parameters are from show_own() to write_back(), if it is not whole().
  std::vector<c10::Storage> hidden_;  ///< The parameters' storages while they are masters.
  bool unsharded_ = false;
};

/// Who shards a parameter, or what a view such as weight.t() is a view of.
struct Held {
  std::shared_ptr<ShardedModel> model;  ///< Null: nobody.
  size_t unit = 0;                      ///< Index of the FlatUnit there.
};
Held holder_of(const at::Tensor& parameter);
/// Who shards a parameter that learns, if its memory was replaced since; null: nobody.
std::shared_ptr<ShardedModel> holder_of_replaced(const at::Tensor& parameter);

}  // namespace hanji::parallel
