#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/prepare.h"
#include "hanji/comm/work.h"
#include "hanji/parallel/fsdp/internal/flat_unit.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/fsdp/sharded.h"
#include "hanji/parallel/gradients/gradients.h"

namespace hanji::parallel {

/// Gradients of whole parameters over the ranks by reduce_scatter, and each rank's share to the
/// leaves of its shards. Rows and sums have the dtype in which the unit is reduced, shards their own.
///
/// Units begin from the last to the first. Where the shares lie in a file, a share has memory from
/// the begin of its reduction until it has been written behind it, while the units after it are
/// still computed. Members that take a number count from the first unit.
class ShardGradients : public GradientSink {
 public:
  struct Setup {
    comm::Group group;                         ///< Who shares the shards.
    std::optional<comm::Group> replicas = {};  ///< Who has the same shard.
    std::optional<comm::Group> everyone = {};  ///< Stable: all of both; empty: `group`.
    ShardingOptions options = {};
    std::optional<comm::Group> secondary =
        {};                                  ///< Who gathers units while backward runs, if others.
    bool keeps_whole = false;                ///< Rows for every unit, all the time.
    std::string caller = {};                 ///< Said in errors.
    std::shared_ptr<ShardStore> store = {};  ///< Where the shares lie; null: in memory.
    std::weak_ptr<void> handle = {};         ///< The ShardedModel.
    std::shared_ptr<ParameterWatch> watch = {};  ///< The same as in GradientOptions.
    OrderRule rule = {};                         ///< The same.
  };
  ShardGradients(const std::vector<FlatUnit*>& units, Setup setup, Gradients::Events events);

  const at::Tensor& rows(size_t order) override;
  bool keeps_rows() const override { return setup_.keeps_whole || engine_->fold() != nullptr; }
  void begin(size_t order, Gradients& gradients) override;
  void end(size_t order, Gradients& gradients) override;

  Gradients& engine() const { return *engine_; }
  std::vector<at::Tensor> slots(size_t unit) const { return engine_->slots(reversed(unit)); }
  /// Stable: where the sum over all ranks lies, whole.
  at::Tensor sum(size_t unit) const { return units_[unit].rows[0]; }
  /// Of all leaves of units of one dtype, in order; none of those in a file.
  const std::vector<at::Tensor>& flat() const { return flat_; }
  /// This rank's share of the gradients of a unit that learns, and where it lies between uses.
  const at::Tensor& shard(size_t unit) const { return units_[unit].shard; }
  FilePlace shard_in_file(size_t unit) const;
  /// What the shares hold does not count any more.
  void forget();
  /// Calls `visit` for every unit, while the gradients of its leaves are in memory; they are as it
  /// leaves them if it `changes` them.
  void for_each_unit(bool changes, const std::function<void(const FlatUnit&)>& visit);

 private:
  struct Unit {
    FlatUnit* flat = nullptr;
    at::Tensor rows;                ///< Undefined while it has none.
    at::Tensor shard;               ///< Where this rank's share lies for its leaves.
    std::vector<at::Tensor> slots;  ///< By leaf, in `shard`.
    at::Tensor sum;  ///< Where the reduction puts it: `shard`, or to be added or converted there.
    comm::Call reduce_scatter, all_reduce;  ///< Over the group, and over replicas; not in stable.
    comm::Work work;
    std::shared_ptr<const schedule::StepList> steps;  ///< Stable only.
    std::optional<StoredShard> stored;                ///< Of `shard`.
    at::Tensor used_anywhere;  ///< In a file and to be added: by position, summed over ranks.
    comm::Work used_work;
  };

  size_t reversed(size_t number) const { return units_.size() - 1 - number; }
  void make_engine(Gradients::Events events);
  void place_rows();
  void prepare_calls(Unit& unit, uint64_t tag) const;
  at::Tensor take_row(int64_t count, c10::ScalarType dtype);
  void place_shards();
  void place_in_file(Unit& unit);
  void begin_stored(Unit& unit, size_t order);
  bool retire_oldest();
  void retire(Unit& unit);
  void put_away(Unit& unit);
  void hand_out(Unit& unit, const uint8_t* used);

  std::vector<Unit> units_;
  Setup setup_;
  std::unique_ptr<Gradients> engine_;
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> free_;  ///< Bytes for rows of any unit, reused by all units.
  int64_t row_bytes_ = 0;         ///< Of each of them: the largest unit's.
  int num_made_ = 0;
  size_t num_begun_ = 0;  ///< From the last unit on.
  size_t num_retired_ = 0;
  bool holds_sums_ = false;  ///< In a file: some share counts, on every rank alike.
  uint64_t tags_;            ///< Tag of unit 0, for calls that are not prepared.
};

}  // namespace hanji::parallel
