#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "hanji/parallel/fsdp/internal/flat_unit.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/order_rule.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// A unit as it was asked for: parameters by index, and the module that is called.
struct UnitRequest {
  std::string name = {};
  std::vector<int> parameters = {};
  const torch::nn::Module* module = nullptr;  ///< Whose call unshards it,
  std::vector<int64_t> layers = {};           ///< or those of a model that read it.
  bool is_root = false;                       ///< Stays whole between forward and backward.
};

/// A call of a unit that a backward can come through. Times are those of ModuleUnits' clock.
struct UnitPass {
  size_t unit = 0;
  int64_t entered = 0;
  int64_t left = 0;
  std::shared_ptr<const bool> recomputed = {};  ///< As current_recomputation() was.
  bool spent = false;                           ///< Its backward has run.
};

/// When units are unsharded and resharded.
struct UnitRules {
  bool reshards = false;  ///< Parameters can be read only where their unit is computed.
  bool reshards_after_forward = true;
  bool holds_batch = false;  ///< Stable: units stay whole until the rank's last grain.
  bool prefetches = true;    ///< The next forward or backward is that of the neighbour.
  int max_in_flight = 2;
  MixedPrecisionPolicy precision = {};
  OrderRule order = {};  ///< What ranks have broken whose gathers do not match.
};

/// The modules that are units: who is whole while forward and backward call them.
class ModuleUnits {
 public:
  /// `model` is asked for before_backward().
  ModuleUnits(std::weak_ptr<ShardedModel> model, std::string caller, UnitRules rules);

  /// The next unit. Its parameters are those of `flats`, which outlive this.
  void add(const UnitRequest& request, const std::vector<FlatUnit*>& flats);

  /// The units that a layer of a model reads, its own last.
  std::span<const size_t> read_by(int64_t layer) const;
  /// What these layers read is whole from here to release(), whatever is called meanwhile.
  void hold(layout::Range layers);
  void release(layout::Range layers);
  /// Throws while a unit is held: its copy would be older than the shards after an update.
  void check_released() const;
  /// The unit that `module` is, if it is one.
  std::optional<size_t> find(const torch::nn::Module& module) const;
  Casts enter(size_t unit);
  /// After enter(); `outputs` are what the unit gave, nothing if it threw.
  void leave(size_t unit, const std::vector<at::Tensor>& outputs);
  /// An operation is about to read parameters of these flats, in a forward whose units nobody calls
  /// by name.
  void touch(const std::vector<size_t>& flats);
  /// An operation of unit `flat` gave these.
  void touched(size_t flat, const std::vector<at::Tensor>& outputs) {
    watch(unit_of_flat_[flat], ++clock_, outputs);
  }

  /// Throws if the backward of the call has run.
  void check_unspent(const UnitPass& pass) const;
  /// What autograd runs before the first node of a unit's backward.
  void before_backward(const std::shared_ptr<UnitPass>& pass);
  /// All gradients of a flat are there.
  void on_gradients_of(const FlatUnit& flat);
  /// `ends_batch`: no backward of the step follows.
  void on_end_of_backward(bool ends_batch, bool keeps_graph);

  void reshard_all();
  /// While true all are unsharded for every reader.
  void set_pinned(bool pinned) { pinned_ = pinned; }
  bool is_pinned() const { return pinned_; }
  /// Begins to read what the next forward, which goes as the one before did, begins with.
  void read_ahead() const;

 private:
  struct ModuleUnit {
    std::string name;
    std::vector<FlatUnit*> flats = {};
    bool is_root = false;
    bool stays_whole = false;  ///< From its forward to its backward, whatever the rules.
    size_t num_learning = 0;
    size_t num_done = 0;  ///< Of those, in this backward.
    int depth = 0;        ///< Calls on the way.
    int64_t entered = 0;  ///< The outermost of them.
    int holds = 0;        ///< By hold(), without release().
    /// Of one that holds frozen parameters: whose backward has begun, while nothing says it is over.
    std::shared_ptr<const UnitPass> begun = {};

    bool holds_frozen() const { return flats.size() > num_learning; }
    bool is_unsharded() const;
  };
  std::vector<size_t> read_in(layout::Range layers) const;
  void begin_call(size_t unit);
  void check_root_is_called(const ModuleUnit& unit) const;
  static std::string to_string(const ModuleUnit& unit);
  void unshard(ModuleUnit& unit);
  void reshard(ModuleUnit& unit);
  void reshard_after_forward(ModuleUnit& unit);
  bool reshards_after(const ModuleUnit& unit) const;
  void prefetch(size_t unit, int direction);
  size_t num_whole() const;
  std::optional<size_t> neighbour(size_t unit, int direction) const;
  void watch(size_t unit, int64_t entered, const std::vector<at::Tensor>& outputs);
  void reshard_done(const UnitPass& next);

  std::weak_ptr<ShardedModel> model_;
  std::string caller_;
  UnitRules rules_;
  std::vector<ModuleUnit> units_;
  std::vector<size_t> unit_of_flat_;
  std::unordered_map<const torch::nn::Module*, size_t> by_module_;
  std::unordered_map<int64_t, std::vector<size_t>> by_layer_;
  std::vector<size_t> order_;                     ///< Of the forward before.
  std::vector<size_t> called_;                    ///< Of the forward that runs.
  std::vector<std::shared_ptr<UnitPass>> spent_;  ///< Whose backward runs now.
  std::vector<size_t> touched_;                   ///< The units that compute, by touch().
  int64_t clock_ = 0;                             ///< Counts entering and leaving units.
  bool pinned_ = false;
};

}  // namespace hanji::parallel
