#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hanji/parallel/fsdp/internal/flat_unit.h"
#include "hanji/parallel/fsdp/internal/shard_gradients.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/fsdp/internal/unit_observer.h"
#include "hanji/parallel/fsdp/unit.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// A unit as it was asked for: parameters by index, and the module that is called.
struct UnitRequest {
  std::string name;
  std::vector<int> parameters;
  const torch::nn::Module* module = nullptr;  ///< Whose call unshards it.
  bool is_root = false;                       ///< Stays whole between forward and backward.
};

/// A call of a unit that a backward can come through. Times are those of ShardedModel's clock.
struct UnitPass {
  size_t unit = 0;
  int64_t entered = 0;
  int64_t left = 0;
  std::shared_ptr<const bool> recomputed = {};  ///< As current_recomputation() was.
  bool spent = false;                           ///< Its backward has run.
};

/// All that Sharded speaks for: units, their gradients, and who is whole when.
class ShardedModel : public std::enable_shared_from_this<ShardedModel> {
 public:
  struct Spec {
    std::string caller;  ///< Said in errors.
    ShardGradients::Setup gradients;
    std::vector<NamedParameter> parameters = {};
    std::vector<UnitRequest> units = {};
    Residence residence = Residence::kShared;
    std::optional<lens::InitialValues> initial = {};  ///< Of parameters without memory.
    c10::Device device = c10::kCPU;                   ///< Where the parameters will be.
    bool reshards = false;  ///< Parameters can be read only where their unit is computed.
    bool reshards_after_forward = true;
    bool holds_batch = false;  ///< Stable: units stay whole until the rank's last grain.
    bool observes = false;     ///< Units are found by what operations read.
    std::optional<comm::Group> secondary = {};  ///< Who units are resharded over after forward.
  };
  static std::shared_ptr<ShardedModel> create(Spec spec);

  /// The unit that `module` is, if it is one.
  std::optional<size_t> find(const torch::nn::Module& module) const;
  Casts enter(size_t unit);
  /// After enter(); `outputs` are what the unit gave, nothing if it threw.
  void leave(size_t unit, const std::vector<at::Tensor>& outputs);
  /// An operation is about to read parameters of these, in a forward whose units nobody calls by
  /// name.
  void touch(const std::vector<size_t>& flats);
  /// An operation of unit `flat` gave these.
  void touched(size_t flat, const std::vector<at::Tensor>& outputs) {
    watch(unit_of_flat_[flat], ++clock_, outputs);
  }
  /// What autograd runs before the first node of a unit's backward.
  void before_backward(const std::shared_ptr<UnitPass>& pass);
  /// Throws if this rank's shards were written behind step()'s back.
  void check_untouched() const;

  void step(const std::function<void()>& update);
  double clip_grad_norm(double max_norm);
  /// Where shards lie that are not in memory; null: all are.
  const ShardStore* store() const { return store_.get(); }
  /// Throws kUnsupported, naming the caller, where parameters, or gradients, lie in a file.
  void check_in_memory(const std::string& caller, bool parameters, bool gradients) const;
  void begin_full_parameters();
  void end_full_parameters();

  ShardGradients& gradients() { return *gradients_; }
  const ShardGradients& gradients() const { return *gradients_; }
  const std::vector<std::unique_ptr<FlatUnit>>& units() const { return flats_; }
  /// Those that learn, in the order of ShardGradients.
  const std::vector<FlatUnit*>& learning() const { return learning_; }
  const comm::Group& group() const { return group_; }
  const std::string& caller() const { return caller_; }
  Residence residence() const { return residence_; }
  /// Ranks that a unit is resharded over after forward; 0: those that have its shards.
  int num_secondary() const { return num_secondary_; }
  const MixedPrecisionPolicy& precision() const { return precision_; }
  /// Why `tensor` is no leaf of ours, for whoever wants to step with it; empty if it is one.
  std::string why_foreign(const at::Tensor& tensor) const;

 private:
  struct ModuleUnit {
    std::string name;
    std::vector<size_t> flats = {};
    bool is_root = false;
    size_t num_learning = 0;
    size_t num_done = 0;  ///< Of those, in this backward.
    int depth = 0;        ///< Calls on the way.
    int64_t entered = 0;  ///< The outermost of them.
    /// Of one that holds frozen parameters: whose backward has begun, while nothing says it is over.
    std::shared_ptr<const UnitPass> begun = {};

    bool holds_frozen() const { return flats.size() > num_learning; }
  };
  explicit ShardedModel(Spec& spec);
  void open_store(const Spec& spec);
  void start(Spec& spec);
  void add_flats(const Spec& spec, const UnitRequest& request, ModuleUnit& unit);
  void begin_call(size_t unit);
  void check_root_is_called(const ModuleUnit& unit) const;
  std::string words(size_t unit) const;
  void unshard(ModuleUnit& unit);
  void reshard(ModuleUnit& unit);
  void reshard_after_forward(ModuleUnit& unit);
  bool is_unsharded(const ModuleUnit& unit) const;
  bool reshards_after(const ModuleUnit& unit) const;
  void prefetch(size_t unit, int direction);
  size_t num_unsharded() const;
  std::optional<size_t> neighbour(size_t unit, int direction) const;
  void watch(size_t unit, int64_t entered, const std::vector<at::Tensor>& outputs);
  void reshard_done(const UnitPass& next);
  void on_unit_done(size_t learning);
  void on_end_of_backward();
  void reshard_all();
  void meet() const;
  void note_versions();
  /// Of shards in a file, until step().
  void refuse_updates() const;
  void update_shards(const std::function<void()>& update);

  std::string caller_;
  comm::Group group_;
  Residence residence_;
  MixedPrecisionPolicy precision_;
  int num_secondary_;
  bool reshards_after_forward_;
  bool reshards_;
  bool holds_batch_;
  int max_in_flight_;
  std::optional<ShardOffload> offload_;
  std::shared_ptr<ShardStore> store_;
  std::vector<std::unique_ptr<FlatUnit>> flats_;
  std::vector<FlatUnit*> learning_;
  std::vector<size_t> unit_of_learning_;
  std::vector<size_t> unit_of_flat_;
  std::vector<ModuleUnit> units_;
  std::unordered_map<const torch::nn::Module*, size_t> by_module_;
  std::unique_ptr<ShardGradients> gradients_;
  std::unique_ptr<UnitObserver> observer_;
  std::vector<size_t> order_;                     ///< Of the forward before.
  std::vector<size_t> called_;                    ///< Of the forward that runs.
  std::vector<std::shared_ptr<UnitPass>> spent_;  ///< Whose backward runs now.
  int64_t clock_ = 0;                             ///< Counts entering and leaving units.
  std::vector<std::pair<at::Tensor, uint32_t>> versions_;
  int depth_ = 0;                ///< Calls of units on the way.
  std::vector<size_t> touched_;  ///< The units that compute, by touch().
  bool pinned_ = false;          ///< While all are whole for whoever looks.

  friend struct BeforeBackward;
};

}  // namespace hanji::parallel
