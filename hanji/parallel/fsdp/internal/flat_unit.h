#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "hanji/lens/deferred.h"
#include "hanji/parallel/fsdp/internal/unit_memory.h"

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
  /// The parameters stay as they are, and can be read where their memory is.
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

  /// Mixed: the masters of all ranks come together; show_masters() after all ranks have begun.
  void begin_masters();
  /// The module's parameters are the masters, ordinary ones in their own dtype, until write_back().
  void show_masters();
  /// What was written to the whole parameters becomes this rank's shard.
  void write_back();

 private:
  void make_leaves(const lens::InitialValues* initial);
  void fill(const Leaf& leaf, const lens::InitialValues* initial) const;
  c10::DataPtr held(void* data, at::Tensor memory) const;
  void point_at_whole();
  void refuse_reads();
  void hide_masters();

  UnitPart part_;
  std::unique_ptr<UnitMemory> memory_;
  std::weak_ptr<ShardedModel> model_;
  size_t index_ = 0;  ///< Among the model's units.
  std::vector<Leaf> leaves_;
  at::Tensor masters_;                ///< Whole, while the parameters are these.
  std::vector<c10::Storage> hidden_;  ///< The parameters' own storages meanwhile.
  bool unsharded_ = false;
};

/// Who shards a parameter, or what a view such as weight.t() is a view of.
struct Held {
  std::shared_ptr<ShardedModel> model;  ///< Null: nobody.
  size_t unit = 0;                      ///< Index of the FlatUnit there.
};
Held holder_of(const at::Tensor& parameter);

}  // namespace hanji::parallel
