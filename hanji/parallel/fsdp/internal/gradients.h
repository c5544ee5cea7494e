#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/work.h"
#include "hanji/parallel/fsdp/internal/buffer_pool.h"
#include "hanji/parallel/fsdp/internal/flat_unit.h"
#include "hanji/parallel/fsdp/internal/gradient_trap.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/fsdp/sharded.h"
#include "hanji/parallel/gradient_hook.h"
#include "hanji/parallel/grain_fold.h"

namespace hanji::parallel {

/// Gradients of whole parameters into buffers of their unit, units over the ranks, and each rank's
/// share to the leaves of its shards, while backward still runs. Buffers and sums have the dtype in
/// which the unit is reduced, shards their own.
///
/// Units are reduced from the last to the first, whatever the order of a rank's own hooks. What
/// autograd put into `.grad` of a whole parameter is taken out of there at once, and a trap stands
/// there until the next backward.
class Gradients {
 public:
  /// Told while backward runs.
  struct Events {
    std::function<void()> on_first;       ///< The first gradient of a backward.
    std::function<void(size_t)> on_unit;  ///< All of a unit's gradients are there.
    std::function<void()> on_end;         ///< The end of a backward, before the sums are there.
  };
  struct Setup {
    comm::Group group;                         ///< Who shares the shards.
    std::optional<comm::Group> replicas = {};  ///< Who has the same shard.
    std::optional<comm::Group> everyone = {};  ///< Stable: all of both; empty: `group`.
    ShardingOptions options = {};
    std::optional<comm::Group> near = {};    ///< Who gathers units while backward runs, if others.
    bool keeps_whole = false;                ///< A buffer for every unit, all the time.
    std::string caller = {};                 ///< Said in errors.
    std::shared_ptr<ShardStore> store = {};  ///< Where the shares lie; null: in memory.
  };
  Gradients(const std::vector<FlatUnit*>& units, Setup setup, Events events);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  void set_accumulating(bool accumulating);
  void begin_grain(int64_t index);
  const GrainFold& fold() const;
  void set_weight(double weight);
  /// For a backward that reaches no parameter.
  void finish();
  /// From inside a backward: its end is told, whether or not a gradient comes.
  void arm();
  bool in_backward() const { return armed_graph_task_ != -1; }
  /// Which graphs end with this backward.
  bool keeps_graph() const { return keeps_graph_; }
  /// By position in `unit`: where the next gradient of each parameter is to lie; undefined where it
  /// will be added to another, or where that is not known before. No trap stands in `.grad` then.
  std::vector<at::Tensor> slots(const FlatUnit& unit) const;
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
    std::vector<std::unique_ptr<GradientTrap>> traps;  ///< By position.
    size_t first_parameter = 0;                        ///< Of all that learn.
    at::Tensor rows;              ///< [buffers, count]; undefined while it has none.
    std::vector<uint8_t> filled;  ///< By position: the buffer holds something of it.
    std::vector<uint8_t> ready;   ///< By position: this backward has given its gradient.
    std::vector<uint8_t> used;    ///< By position: since the last reduction.
    size_t num_ready = 0;
    at::Tensor shard;               ///< Where this rank's share lies for its leaves.
    std::vector<at::Tensor> slots;  ///< By leaf, in `shard`.
    at::Tensor sum;  ///< Where the reduction puts it: `shard`, or to be added or converted there.
    comm::Work work;
    bool launched = false;
    std::shared_ptr<const schedule::StepList> steps;  ///< Stable only.
    std::optional<StoredShard> stored;                ///< Of `shard`.
    at::Tensor used_anywhere;  ///< In a file and to be added: by position, summed over ranks.
    comm::Work used_work;
  };

  void place_buffers();
  void place_shards();
  void install_hooks();
  void on_gradient(size_t unit, size_t position);
  void take(Unit& unit, size_t position);
  void fold_in(Unit& unit, size_t position);
  void mark_ready(size_t unit, size_t position);
  void need_rows(Unit& unit);
  bool retire_oldest();
  void launch_ready_units();
  void launch(Unit& unit, size_t index);
  void retire(Unit& unit);
  void place_in_file();
  void begin_stored(Unit& unit, size_t index);
  void put_away(Unit& unit);
  void end_of_backward();
  void reduce_all();
  void scale();
  double divisor();
  at::Tensor used_anywhere();
  void hand_out(Unit& unit, const uint8_t* used);
  void reset();
  at::Tensor slot(const Unit& unit, size_t row, size_t position) const;
  const comm::Group& everyone() const { return setup_.everyone ? *setup_.everyone : setup_.group; }
  bool is_last_grain() const { return !fold_ || fold_->is_last(); }

  std::vector<Unit> units_;
  Setup setup_;
  Events events_;
  std::optional<GrainFold> fold_;
  std::vector<at::Tensor> flat_;
  BufferPool pool_;
  size_t num_parameters_ = 0;
  size_t num_launched_ = 0;  ///< From the last unit on.
  size_t num_retired_ = 0;
  size_t row_ = 0;
  int armed_graph_task_ = -1;
  bool keeps_graph_ = false;
  bool accumulating_ = false;
  bool holds_sums_ = false;  ///< In a file: some share counts, on every rank alike.
  double weight_ = 1;
  at::Tensor total_weight_;  ///< Undefined: not asked for yet.
};

}  // namespace hanji::parallel
