#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hanji/parallel/fsdp/internal/flat_unit.h"
#include "hanji/parallel/fsdp/internal/module_units.h"
#include "hanji/parallel/fsdp/internal/shard_gradients.h"
#include "hanji/parallel/fsdp/internal/shard_store.h"
#include "hanji/parallel/fsdp/internal/unit_observer.h"

namespace hanji::parallel {

/// All that Sharded speaks for: units, their gradients, and who may write to what.
class ShardedModel : public std::enable_shared_from_this<ShardedModel> {
 public:
  struct Spec {
    std::string caller;  ///< Said in errors.
    ShardGradients::Setup gradients;
    std::vector<NamedParameter> parameters = {};
    std::vector<UnitRequest> units = {};
    UnitRules rules = {};
    Residence residence = Residence::kShared;
    std::optional<lens::InitialValues> initial = {};  ///< Of parameters without memory.
    c10::Device device = c10::kCPU;                   ///< Where the parameters will be.
    bool observes = false;                            ///< Units are found by what operations read.
    std::optional<comm::Group> secondary = {};  ///< Who units are resharded over after forward.
    const torch::nn::Module* module = nullptr;  ///< The module that has these parameters.
  };
  static std::shared_ptr<ShardedModel> create(Spec spec);

  /// What was asked for, without the parameters and their initial values.
  const Spec& spec() const { return spec_; }
  const comm::Group& group() const { return spec_.gradients.group; }
  ModuleUnits& modules() { return *modules_; }
  ShardGradients& gradients() { return *gradients_; }
  const std::vector<std::unique_ptr<FlatUnit>>& units() const { return flats_; }
  /// Those that learn, in the order of ShardGradients.
  const std::vector<FlatUnit*>& learning() const { return learning_; }
  /// Where shards lie that are not in memory; null: all are.
  const ShardStore* store() const { return store_.get(); }

  /// What autograd runs before the first node of a unit's backward.
  void before_backward(const std::shared_ptr<UnitPass>& pass);
  void step(const std::function<void()>& update);
  void begin_full_parameters();
  void end_full_parameters();

  /// Throws kInvalidArgument, naming them, for parameters whose memory was replaced and whose values cannot
  /// become those of the shards.
  void check_placed() const;

  /// Throws kUnsupported, naming the caller, where parameters, or gradients, lie in a file.
  void check_in_memory(const std::string& caller, bool parameters, bool gradients) const;
  /// Why `tensor` is no leaf of ours, for an optimizer that steps with it; empty if it is one.
  std::string why_foreign(const at::Tensor& tensor) const;

 private:
  explicit ShardedModel(Spec spec) : spec_(std::move(spec)) {}
  void start();
  void open_store();
  void add_flats(const UnitRequest& request);
  Gradients::Events events();
  bool shards_together() const { return spec_.gradients.options.shards_together; }
  /// Where ranks wait for each other; those that wait elsewhere are told so.
  enum class Meeting : uint8_t {
    kStart,
    kBeforeUpdate,
    kAfterUpdate,
    kFull,
    kMasters,
    kAllEnd,
    kWrittenBack
  };
  void meet(Meeting where) const;
  void note_versions();
  void refuse_graph() const;
  /// Throws if this rank's shards were written behind step()'s back, or whole parameters outside of
  /// full_parameters().
  void check_untouched() const;
  void check_unwritten() const;
  /// What replaces the memory of parameters and shards between steps becomes this rank's shards.
  void take_replaced();
  /// Of shards in a file, until step().
  void refuse_updates() const;
  void update_shards(const std::function<void()>& update);

  Spec spec_;
  OrderRule meeting_rule_;
  uint64_t tags_ = 0;  ///< Tags of calls that are not prepared: of meetings, then of units.
  std::shared_ptr<ShardStore> store_;
  std::vector<std::unique_ptr<FlatUnit>> flats_;
  std::vector<FlatUnit*> learning_;
  std::optional<ModuleUnits> modules_;
  std::unique_ptr<ShardGradients> gradients_;
  std::unique_ptr<UnitObserver> observer_;
  std::vector<std::pair<at::Tensor, uint32_t>> versions_;
  std::vector<uint32_t>
      whole_versions_;  ///< Versions of parameters that are not written outside of a scope.
  int num_scopes_ = 0;  ///< Scopes of full_parameters() that live.
};

/// What a handle speaks for.
ShardedModel& model_of(const Sharded& sharded);

}  // namespace hanji::parallel
