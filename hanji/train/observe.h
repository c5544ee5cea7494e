#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/checkpoint/hash.h"
#include "hanji/layout/flat.h"
#include "hanji/layout/placement.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/report/observed.h"
#include "hanji/train/reference.h"

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// Elements of a tensor, in row-major order.
struct HeldElements {
  layout::Range range = {};
  at::Tensor values;  ///< [range.size()]
};

/// A tensor of a job's state under its name in checkpoints; a part of it if an axis cuts it.
struct StateTensor {
  std::string name;
  at::Tensor tensor;
  layout::Placement placement = {};
  int stage_rank = -1;  ///< The rank of the stage that has it; -1: this rank.
  /// If ranks hold it in shards of their own, this rank's: `tensor` has no memory then.
  std::optional<HeldElements> held = {};

  std::vector<int64_t> whole_shape() const;
};

/// Of a flat tensor the piece of each parameter, shaped like it.
std::vector<at::Tensor> by_parameter(const at::Tensor& flat, const layout::FlatLayout& layout,
                                     const std::vector<parallel::NamedParameter>& parameters);

/// What a job holds between two steps; gradients and parameters in one order. Knows of no group: the
/// one process has the same.
struct JobView {
  std::vector<StateTensor> buffers, gradients, parameters, optimizer;
};

/// The whole of a state tensor. Collective over the ranks that have its parts, if it is cut.
using WholeOf = std::function<at::Tensor(const StateTensor&)>;

/// A range of a flat state that no other rank can read: of one parameter.
struct HeldRange {
  layout::Range range = {};
  at::Tensor parameters;            ///< [range.size()]; undefined: FlatState::parameters are whole.
  std::vector<at::Tensor> moments;  ///< In the order of FlatState::moments.
};

/// The model's buffers, its parameters, and of flat tensors the pieces that belong to them.
struct FlatState {
  const layout::FlatLayout& layout;
  /// What learns, in order of registration, where it can be read and written.
  std::vector<parallel::NamedParameter> parameters;
  std::vector<at::Tensor> gradients;              ///< By parameter, shaped like it; or none.
  std::vector<parallel::NamedParameter> moments;  ///< What the optimizer keeps, by moment_names().
  int64_t num_updates = 0;
  /// If ranks hold the state in shards of their own, this rank's, in any order; then moments are names
  /// alone, and parameters may have no memory.
  std::optional<std::vector<HeldRange>> held = {};
};
JobView view_of(const layers::Model& model, const FlatState& state);
/// The parameters, then the buffers: what a checkpoint has of the model, and hashes count.
std::vector<StateTensor> model_of(const JobView& view);

/// Hashes of tensors of the model, and of these and the optimizer's, one tensor after another.
checkpoint::StateHashes hashes_of(const std::vector<StateTensor>& model,
                                  const std::vector<StateTensor>& optimizer,
                                  const WholeOf& whole_of);

/// Loss and gradient norm of a step, as the run tells them.
struct StepTotals {
  double loss = 0;
  double gradient_norm = 0;
};

struct ObserveOptions {
  /// After this many steps, writes all tensors to `keep_file`, if it is named; gradients as
  /// "gradient.NAME".
  std::optional<int64_t> keep_step = std::nullopt;
  std::filesystem::path keep_file = {};
  WholeOf whole_of = [](const StateTensor& one) { return one.tensor; };
  /// Of the one process: writes them after each step, with loss and norm as "total.NAME", as
  /// Reference::file() of this folder.
  std::filesystem::path reference_folder = {};
  /// Of a rank: what is within its bound counts as the one process's, with the same digests.
  std::optional<Reference> reference = std::nullopt;
};

/// A parameter and the first of the layers whose gradient is meant.
struct GradientName {
  std::string parameter;
  int64_t layer = 0;
};

/// Notes what one process sees of a job, as digests of whole tensors.
///
/// Order   the ranks that have parts of tensors call the members alike.
/// Cost    one pass over gradients, parameters and moments per step.
class Observer {
 public:
  explicit Observer(ObserveOptions options = {}) : options_(std::move(options)) {}

  /// The gradients of one backward(), before they are added to others: call it once per parameter, layer
  /// that reads it and part, in any order.
  void backward(report::BackwardPart of, const GradientName& name, const at::Tensor& gradient);
  /// The sum of all gradients, before the update divides it. A step without it (a skipped update)
  /// shows what JobView has.
  void summed(const std::vector<StateTensor>& gradients);
  /// After step number `steps_done`; 0 before the first, without gradients and totals.
  /// Errors  those of writing keep_file.
  Status step(int64_t steps_done, const JobView& job, const StepTotals& totals = {});
  /// Everything, with the hash of the state that the last step left.
  report::ObservedRun finish(const JobView& job);

 private:
  void add(std::vector<report::Digest>& digests, report::Quantity quantity,
           const std::vector<StateTensor>& tensors);
  /// The whole of a tensor, which has a prefix in files: the one process's if it is within the bound.
  at::Tensor seen(const StateTensor& one, std::string_view prefix = "");
  checkpoint::StateHashes hashes_of(const std::vector<StateTensor>& model,
                                    const std::vector<StateTensor>& optimizer);
  bool is_kept() const;
  Status keep(const JobView& job, const std::vector<StateTensor>& totals);
  Status write(const std::vector<StateTensor>& tensors, const std::filesystem::path& path) const;

  ObserveOptions options_;
  report::ObservedRun run_;
  std::map<report::BackwardPart, uint64_t> backwards_;
  std::vector<report::Digest> gradients_;
  std::vector<StateTensor> kept_gradients_;
  int64_t steps_done_ = 0;  ///< Of the step that is seen.
};

}  // namespace hanji::train
