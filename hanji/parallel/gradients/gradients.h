#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/average.h"
#include "hanji/parallel/gradients/gradient_trap.h"
#include "hanji/parallel/gradients/grain_fold.h"
#include "hanji/parallel/gradients/sink.h"
#include "hanji/parallel/grain_part.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/order_rule.h"
#include "hanji/parallel/parameter_watch.h"

namespace hanji::parallel {

/// Parameters whose gradients are reduced together.
struct GradientUnit {
  std::vector<NamedParameter> parameters;
  std::vector<int64_t> offsets;  ///< Of each parameter in a row of the sink.
};

/// The `.grad` of a parameter after its gradient was copied to its slot.
enum class Remainder : uint8_t {
  kSlot,      ///< The slot: autograd adds the next gradient there.
  kGradient,  ///< The gradient of backward; copied in end_step(), for stable bits after each grain.
  kNothing,   ///< The next gradient is added to the slot.
  kTrap,      ///< The same, and `.grad` is a GradientTrap.
};

struct GradientOptions {
  std::string caller;               ///< Named in errors: the function that made the handle.
  std::vector<comm::Group> groups;  ///< Over which gradients are summed, one group after another.
  std::optional<comm::Group> secondary = {};  ///< Another group that communicates during backward.
  Average average = Average::kMean;
  int64_t num_grains = 0;  ///< Stable bits; 0: none.
  std::vector<layout::Range> owners = {};
  int owner = 0;                      ///< The index of this rank among the owners.
  std::vector<GrainPart> parts = {};  ///< As in DataParallelOptions.
  Remainder remainder = Remainder::kSlot;
  bool ends_by_call = false;        ///< Steps end in end_step() only.
  bool static_order = false;        ///< As in DataParallelOptions.
  std::weak_ptr<void> handle = {};  ///< Handle of a sharded module, for handle_of().
  /// Watches the module that has these parameters. A step in which it finds mistakes on any rank gives no
  /// gradients, and throws them on every rank; with ends_by_call, or a static order, on this rank.
  std::shared_ptr<ParameterWatch> watch = {};
  OrderRule rule =
      {};  ///< Rule that calls which do not match have broken; empty: rule_of_handle().
};

/// Copies gradients to the slots of their units during backward, and passes complete units to a sink.
///
/// In a backward, the hook of every parameter copies its gradient to a slot in a row of its unit. A
/// complete unit begins after all units before it have begun. The callback at the end of backward fills
/// missing gradients with zeros and ends all units. A step has one backward, or the number given by
/// expect() or by the grains.
///
/// Stable bits: a backward is one grain of one part. Each partial sum has a row; hooks add rows by the
/// grain tree while they are in the cache, and a unit begins in the backward of the last grain of its
/// parameters.
///
/// Accumulation, weights, unused parameters, sparse gradients and other dtypes work identically for
/// every sink.
class Gradients {
 public:
  /// Callbacks during backward; may be empty.
  struct Events {
    std::function<void()> on_first;       ///< The first gradient of a backward.
    std::function<void(size_t)> on_unit;  ///< This backward has given all gradients of a unit.
    std::function<void()> on_end;         ///< The end of a backward, before units end.
    std::function<void()> on_sums;        ///< A step has ended.
  };
  /// Units in the order in which they begin. `sink` outlives it.
  Gradients(std::vector<GradientUnit> units, GradientSink& sink, GradientOptions options,
            Events events = {});
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// While true, a backward() only accumulates. Errors: throws kInvalidArgument with stable bits.
  void set_accumulating(bool accumulating);
  /// From now on a step has `backwards[u]` that reach unit u: it begins in the last of them, and the
  /// step ends with the last unit, with the backward() number `all` if that is not 0, or in end_step().
  /// Empty: every backward() is a step. Those that only accumulate are not counted.
  /// Errors  throws kInvalidArgument with stable bits, and for another number of units.
  void expect(std::vector<int64_t> backwards, int64_t all = 0);
  /// Stable bits: the next backward is this grain of this part. Nothing for a part without parameters.
  void begin_grain(int64_t index, size_t part = 0);
  /// This rank's weight; of a step whose sum of weights is known, `total`. With 0 it has no data.
  /// Errors  throws kInvalidArgument if neither `total` is given nor the average kWeighted, and for
  ///         a negative weight.
  void set_weight(double weight, std::optional<double> total = {});

  /// Called within a backward: calls back at its end, also if no gradient arrives.
  void arm();
  /// For a backward that reaches no parameter.
  void finish();
  /// Ends a step, also if backwards are missing. With stable bits, throws kInvalidArgument for missing
  /// grains.
  void end_step();

  /// Throws on this rank if its module has changed.
  void refuse_changes() const;
  /// Throws kUnsupported within a backward that makes a graph of itself (create_graph).
  void refuse_graph() const;
  /// Throws on every rank if the module of any has. A collective.
  void refuse_changes_together() const;
  const OrderRule& order_rule() const { return options_.rule; }

  bool in_backward() const { return armed_graph_task_ != -1; }
  /// The graphs that end with this backward.
  bool keeps_graph() const { return keeps_graph_; }
  /// Of the part of the last begin_grain(); null without stable bits.
  const GrainFold* fold() const { return folds_.empty() ? nullptr : &folds_[part_]; }
  /// Of a unit in memory: with stable bits as many as the folds of its parts need.
  int64_t num_rows() const;
  /// The place of the next gradient of each parameter of a unit. With kTrap, undefined if it will be
  /// added to another gradient, or if rows are not kept; `.grad` then has no trap.
  std::vector<at::Tensor> slots(size_t unit);

  /// For sinks, by position: 1 where this rank has a gradient.
  std::span<const uint8_t> used_here(size_t unit) const { return units_[unit].held; }
  /// The same for any rank. The first call in a step is a collective.
  std::span<const uint8_t> used(size_t unit);
  /// The remaining divisor of the sums. With weights, the first call is a collective.
  double divisor();

 private:
  struct Unit {
    GradientUnit of;
    std::vector<std::unique_ptr<GradientTrap>> traps;  ///< By position.
    std::vector<uint8_t> ready;          ///< By position: this backward has given its gradient.
    std::vector<uint8_t> reached;        ///< A hook has since the last step.
    std::vector<uint8_t> held;           ///< The slot holds something of it.
    std::vector<uint8_t> reached_first;  ///< Static order: `reached` in the first step.
    std::vector<size_t> parts;           ///< By position.
    std::vector<std::vector<int64_t>> sizes;  ///< By position: of the parameters at first.
    size_t num_ready = 0;
    size_t num_summed = 0;      ///< Stable bits: whose last grain is folded.
    size_t first = 0;           ///< Of all parameters.
    int64_t num_backwards = 0;  ///< That have reached it in this step.
    bool complete = false;      ///< Its last backward of the step has given everything.
    at::Tensor rows;            ///< As the sink had them, and their slots, row by row.
    std::vector<at::Tensor> slots;
  };

  void make_folds();
  void expect_parts();
  void install_hooks();
  void watch_frozen();
  void on_gradient(size_t unit, size_t position);
  void receive(size_t unit, size_t position);
  void on_frozen_gradient();
  bool has_changed() const { return options_.watch && options_.watch->has_mistakes(); }
  void exchange_used();
  const at::Tensor& slot(size_t unit, size_t row, size_t position);
  void take(size_t unit, size_t position);
  void mark_ready(size_t unit, size_t position);
  bool is_last_backward(size_t unit) const;
  void begin_complete_units();
  void fill(size_t unit);
  void end_of_backward();
  void finish_backward();
  void finish_step();
  void end_backward();
  void end_units();
  void check_static_order() const;
  bool grad_holds_all() const { return options_.remainder <= Remainder::kGradient; }

  std::vector<Unit> units_;
  GradientSink& sink_;
  GradientOptions options_;
  Events events_;
  std::vector<GrainFold> folds_;  ///< By part; none without stable bits.
  size_t part_ = 0;
  std::vector<int64_t> expected_;
  int64_t expected_in_all_ = 0;
  int64_t num_backwards_ = 0;  ///< Of those in this step.
  size_t num_begun_ = 0;
  size_t row_ = 0;  ///< Where gradients go now.
  int64_t num_folded_ = 0;
  int armed_graph_task_ = -1;
  bool keeps_graph_ = false;
  bool refuses_ =
      false;  ///< This backward: the module has changed, so its gradients are not taken.
  bool accumulating_;
  double weight_ = 1;
  std::optional<double> total_weight_;  ///< Once it is known.
  at::Tensor used_;                     ///< Undefined: not asked for yet.
  std::vector<uint64_t> tags_;          ///< By group, of calls that are not a unit's.
};

}  // namespace hanji::parallel
