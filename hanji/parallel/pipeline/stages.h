#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/schedule/action.h"

namespace hanji::layers {
class Model;
}

namespace hanji::parallel {

/// The stages of a model: consecutive ranges of its layers that cover all of them, and the rank of a
/// group that computes each.
struct Stages {
  std::vector<layout::Range> layers;
  std::vector<int> ranks;
  /// Whether backward_input of a stage leaves the gradients of its weights to backward_weight; else it
  /// computes all, and backward_weight nothing. Empty: no stage does. On the CPU only.
  std::vector<bool> splits = {};

  int last() const { return static_cast<int>(layers.size()) - 1; }
  bool splits_at(int stage) const { return !splits.empty() && splits[stage]; }
  /// Whether an action computes gradients of its stage's parameters.
  bool adds_gradients(const schedule::Action& action) const;
  int of_layer(int64_t layer) const;
  /// The rank of the first stage that reads a parameter; that of stage 0 if none does.
  int first_rank_of(const at::Tensor& parameter, const layers::Model& model) const;
};

/// Throws kInvalidArgument, with all mistakes, unless each stage has a layer, the stages cover the
/// model's layers in order, and each has a rank of a group of `num_ranks`.
void check_stages(const Stages& stages, const layers::Model& model, int num_ranks);

/// Frees the parameters that no stage of `rank` reads. They keep name, shape and dtype and do not
/// learn; reading one throws, naming its stage.
void keep_stages_of(int rank, const Stages& stages, layers::Model& model);

/// The parameters that stages of several ranks read (tied weights). Each of these ranks has a copy,
/// and every copy gets the sum of the gradients of all.
class TiedParameters {
 public:
  /// Copies the values of the rank with the first stage that reads a parameter to the others.
  /// Order   collective.
  TiedParameters(const layers::Model& model, const Stages& stages, const comm::Group& group);

  /// Replaces the gradients of this rank's copies by the sum of those of all ranks that have one.
  ///
  /// `gradients`: of `parameters`, which have all copies of this rank, or equal parts of them; undefined
  /// where this rank has no part.
  /// Order   collective. The sum has one order, by rank: the same bits on all ranks.
  /// Cost    an all_reduce of each tied parameter among its ranks.
  void sum(const std::vector<NamedParameter>& parameters,
           const std::vector<at::Tensor>& gradients) const;

  /// Whether this rank has the first copy of a parameter, which counts in norms and checkpoints; true
  /// of parameters that are not tied.
  bool is_first(const at::Tensor& parameter) const;

  /// This rank's copies.
  std::vector<NamedParameter> parameters() const;

  comm::Stats stats() const;

  /// Throws kMismatch unless all copies have the same bytes, of which `values` have this rank's by name.
  /// Collective.
  void check_same(const std::vector<NamedParameter>& values) const;

 private:
  struct Tied {
    NamedParameter parameter;
    comm::Group group;  ///< The ranks that have it, the one of its first stage first.
  };
  std::vector<Tied> tied_;           ///< Of this rank, in order of the model's parameters.
  std::vector<comm::Group> groups_;  ///< Of these, each once.
};

}  // namespace hanji::parallel
