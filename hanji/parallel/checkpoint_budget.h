#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/layout/recompute.h"
#include "hanji/lens/profile.h"
#include "hanji/parallel/checkpointed.h"

namespace hanji::parallel {

/// Calls blocks by a choice: kept, or checkpointed. By default all are kept.
struct Checkpoints {
  layout::RecomputeChoice choice = {};

  template <class Function, class... Tensors>
  at::Tensor call(size_t block, const Function& fn, const Tensors&... inputs) const {
    const bool again = block < choice.recomputed.size() && choice.recomputed[block];
    return again ? checkpointed(fn, inputs...) : fn(inputs...);
  }
};

/// Selects the blocks of a module to checkpoint, so that the activations of all blocks fit into a
/// budget with the least recomputation.
///
///   auto profile = hanji::profile(*net, [&] { loss(net->forward(x, {})).backward(); });
///   auto checkpoints = hanji::checkpoints_within(2 << 30, profile, {"blocks.0", "blocks.1"}, bytes);
///   ... x = checkpoints.call(i, [&](auto in) { return blocks[i]->forward(in); }, x);
///
/// `profile`: of a step with nothing checkpointed, which may be of a deferred module. `blocks`: names
/// of submodules, in the order of forward. `input_bytes`: of the inputs of one of them.
/// Result  choice.peak_bytes is of the blocks only; layout::choose_recomputed() makes the choice.
/// Errors  throws kOutOfMemory, with the required bytes, if nothing fits; kNotFound for a block that
///         the profile does not contain.
Checkpoints checkpoints_within(int64_t budget_bytes, const lens::Profile& profile,
                               const std::vector<std::string>& blocks, int64_t input_bytes);

}  // namespace hanji::parallel
