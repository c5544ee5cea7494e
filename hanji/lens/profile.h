#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace hanji::lens {

/// One kind of operation of one part of a module, in one direction.
struct OperationSum {
  std::string module;     ///< "encoder.layers.0.linear1"; "" is the module itself.
  std::string operation;  ///< "aten::addmm"
  bool backward = false;
  int64_t calls = 0;
  double flops = 0;
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t kept_bytes = 0;  ///< Of results that were still in memory when backward began.
};

/// What a run of a module asked of libtorch: by any module, what plan::ModelSpec knows of a GPT.
struct Profile {
  std::vector<OperationSum> sums;        ///< In order of their first call.
  std::vector<int64_t> parameter_sizes;  ///< In order of registration, tied ones once.

  int64_t num_parameters() const;
  double forward_flops() const;
  double backward_flops() const;
  int64_t kept_bytes() const;

  /// The `rows` largest sums by flops, then bytes, one line each; what is left together; the total.
  std::string table(size_t rows = 20) const;
};

/// Sums what `run` asks for, one forward and backward for example, by operation and by the part of
/// the module whose parameter or buffer was used last. Works on a deferred module too, with inputs
/// on the meta device: then nothing is computed.
///
/// Result  operations are those that libtorch's composed ones (matmul, lstm, cross_entropy) ask
///         for; flops as in cost.h. What the kernels of hanji's own models do by themselves
///         (attention, normalisation) is no operation of libtorch and is not seen.
/// Cost    about a microsecond per operation.
/// Errors  throws kUnsupported, naming it, for an operation that needs elements (item()) of a tensor on
///         the meta device. Operations that libtorch cannot make there are made in memory, whose
///         results are forgotten at once.
/// Thread  this one; a backward pass on a GPU runs on another and is not seen.
Profile profile(const torch::nn::Module& module, const std::function<void()>& run);

}  // namespace hanji::lens
