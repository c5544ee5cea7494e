#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/tensors.h"

namespace torch::optim {
class Optimizer;
}

namespace hanji::checkpoint::internal {

inline constexpr std::string_view kOptimizerPrefix = "optimizer.";

/// "AdamW", "Adam" or "SGD". Errors: kUnsupported for any other.
Result<std::string> kind_of(const torch::optim::Optimizer& optimizer);

/// The state of an optimizer under the names of its parameters, which `module` gives.
/// Errors  kUnsupported, kInvalidArgument as save().
Result<std::vector<TensorEntry>> state_of(const torch::optim::Optimizer& optimizer,
                                          const torch::nn::Module& module);

/// A state for an optimizer, made to be filled from a file and then put in place.
struct PendingState {
  std::vector<TensorEntry> entries;  ///< What the file must hold, no more and no less.
  std::function<void()> install;     ///< Call when they are filled.
};

/// Which tensors there must be follows from the optimizer's options and from the steps that the
/// file tells of each parameter.
Result<PendingState> prepare_state(torch::optim::Optimizer& optimizer,
                                   const torch::nn::Module& module, const SafetensorsFile& file);

}  // namespace hanji::checkpoint::internal
