#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/layout/unit.h"
#include "hanji/lens/deferred.h"
#include "hanji/parallel/fsdp/internal/precision.h"
#include "hanji/parallel/fsdp/internal/secondary_shard.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

class ShardedModel;

/// Where the whole parameters of a unit lie.
enum class Residence : uint8_t {
  kShared,      ///< Once on the host, in the heap: always whole, every rank writes its shard there.
  kReplicated,  ///< On every rank: made whole again after each step.
  kGathered,    ///< On every rank while it computes with them, else only the shards.
};

/// Where parameters lie, and what they hold if they have no memory yet.
struct Home {
  Residence residence = Residence::kShared;
  c10::Device device = c10::kCPU;
  const lens::InitialValues* initial = nullptr;  ///< For the constructor; null: they have memory.
  UnitDtypes dtypes = {};
  /// Gathered: where the shards are; null: in memory.
  std::shared_ptr<ShardStore> store = nullptr;
  std::optional<comm::Group> secondary =
      {};  ///< Gathered: who a unit is resharded over after forward.
};

/// This rank's part of one parameter, as the optimizer sees it.
struct Leaf {
  size_t position = 0;     ///< In the unit.
  layout::Range elements;  ///< Of the parameter.
  int64_t offset = 0;      ///< In this rank's shard of the unit.
  at::Tensor tensor;
};

/// A copy of what of a whole value, shaped like the parameter, is this rank's.
at::Tensor piece_of(const at::Tensor& whole, const Leaf& leaf);

/// The memory of one unit's parameters: whole, and this rank's shard of it. Where they are computed
/// with in another dtype than they have, the shard is memory of its own, and rounded into the whole.
///
/// Every parameter keeps its TensorImpl and gets a storage of its own, so that views which autograd
/// has saved follow it. While a parameter is resharded, reading its data throws, naming it.
class FlatUnit {
 public:
  /// Takes the values that the parameters have, or of those without memory will have: this rank's
  /// only, never a whole parameter. They must be the same on all ranks of `group`.
  FlatUnit(std::string name, layout::Unit plan, std::vector<NamedParameter> parameters,
           const Home& home, const comm::Group& group);
  /// The parameters stay as they are, and readable where their memory is.
  ~FlatUnit();
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;

  /// Points the parameters here. They can be read where they are always whole, else not.
  void adopt(const std::weak_ptr<ShardedModel>& model, size_t index);

  /// Begins to read the shard from its file, if it lies in one and will be gathered.
  void read_ahead();
  void begin_unshard();
  /// After it the parameters are whole and can be read.
  void unshard();
  /// Gathered parameters lose their memory.
  void reshard();
  /// The same between forward and backward, which will gather them from the secondary shards.
  void reshard_after_forward();
  bool is_unsharded() const { return unsharded_; }
  bool is_unsharding() const { return gathering_.begun(); }
  /// This rank has written its shard: what is always whole gets it, on every rank where it lies on
  /// every rank, until wait_unshard().
  void begin_publish();
  void wait_unshard();
  /// What was written to the whole parameters becomes this rank's shard.
  void write_back();

  /// Mixed: the masters of all ranks come together; show_masters() after all ranks have begun.
  void begin_masters();
  /// The module's parameters are the masters, ordinary ones in their own dtype, until write_back().
  void show_masters();

  const std::string& name() const { return name_; }
  const layout::Unit& plan() const { return plan_; }
  Residence residence() const { return residence_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  /// This rank's elements, in the order of the leaves.
  const at::Tensor& shard() const { return shard_; }
  /// Where they are between uses; nowhere: in memory.
  FilePlace shard_in_file() const { return stored_ ? stored_->in_file() : FilePlace{}; }
  /// By leaf: its part of what is as long as the shard, shaped like it.
  std::vector<at::Tensor> by_leaf(const at::Tensor& shard) const;
  layout::Range range() const { return plan_.shards[group_.rank()]; }
  bool learns() const { return parameters_[0].tensor.requires_grad(); }
  /// Of the shards.
  c10::ScalarType dtype() const { return dtypes_.shard; }
  const UnitDtypes& dtypes() const { return dtypes_; }
  bool is_mixed() const { return dtypes_.compute != dtypes_.shard; }
  /// The whole parameters do not show what is written to the shard.
  bool keeps_apart() const { return is_mixed() || residence_ == Residence::kGathered; }
  c10::Device device() const { return device_; }

  /// One value per leaf, shaped like it, of all ranks together: by position, shaped like the
  /// parameters. A collective.
  std::vector<at::Tensor> whole_of(const std::vector<at::Tensor>& by_leaf) const;

 private:
  void place_in_file(std::shared_ptr<ShardStore> store);
  void make_leaves(const lens::InitialValues* initial);
  void fill(const Leaf& leaf, const lens::InitialValues* initial) const;
  void fill_replicas(const lens::InitialValues* initial);
  c10::DataPtr held(void* data, at::Tensor memory) const;
  void point_at(const at::Tensor& whole);
  at::Tensor empty_whole(c10::ScalarType dtype, const char* category) const;
  /// This rank's part of a whole one.
  at::Tensor own_of(const at::Tensor& whole) const;
  void hide_masters();
  void hide();

  std::string name_;
  layout::Unit plan_;
  std::vector<NamedParameter> parameters_;
  Residence residence_;
  c10::Device device_;
  UnitDtypes dtypes_;
  comm::Group group_;
  std::weak_ptr<ShardedModel> model_;
  size_t index_ = 0;  ///< Among the model's units.
  std::vector<int64_t> counts_;
  std::vector<Leaf> leaves_;
  at::Tensor whole_;  ///< Gathered: only while it is unsharded or being gathered.
  at::Tensor shard_;
  std::optional<StoredShard> stored_;  ///< Of the shard: it has memory while it is brought.
  std::optional<SecondaryShard> secondary_;
  at::Tensor masters_;                ///< Whole, while the parameters are these.
  std::vector<c10::Storage> hidden_;  ///< The parameters' own storages meanwhile.
  comm::Work gathering_;
  bool unsharded_ = false;
};

/// What a parameter's elements lie in.
c10::StorageImpl& storage_of(const at::Tensor& parameter);

/// Gives `parameter` other memory, and a dtype; as Tensor::set_data() it forgets where gradients of
/// another dtype went.
void reseat(const at::Tensor& parameter, c10::Storage storage, c10::ScalarType dtype);

/// Who shards a parameter, or what a view such as weight.t() is a view of.
struct Held {
  std::shared_ptr<ShardedModel> model;  ///< Null: nobody.
  size_t unit = 0;                      ///< Index of the FlatUnit there.
};
Held holder_of(const at::Tensor& parameter);

}  // namespace hanji::parallel
