#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hanji::lens {

/// Whether an operation's results are kept: by its name, "aten::mm".
using KeepRule = std::function<bool(const std::string& operation)>;

struct KeptCall;

/// What chosen operations of a function gave the first time, for a second time that makes all other
/// operations again, and has the same values and gradients.
///
/// A composed operation (aten::linear) is seen as its parts; so name those: aten::addmm. Operations
/// in place, and those whose results alias an argument, are made again.
/// Cost    memory: the results, and a copy of each that is changed in place later, as the product of
///         a torch::nn::Linear of three dimensions is by its bias. What they were made of is let go.
/// Thread  one at a time, both times.
class KeptResults {
 public:
  using Function = std::function<std::vector<at::Tensor>()>;

  explicit KeptResults(KeepRule keeps);
  ~KeptResults();

  /// fn(), with a graph that leads where it would without us, but must not be run.
  std::vector<at::Tensor> first(const Function& fn);
  /// Ends the first time, or the backward of a later one.
  void let_go();
  /// fn() again, with a graph of its own. Errors: throws kInvalidArgument if a kept operation is not
  /// met where it was.
  std::vector<at::Tensor> again(const Function& fn);

  int64_t num_kept() const;
  int64_t kept_bytes() const;

 private:
  class Recorder;
  class Repeater;

  KeepRule keeps_;
  std::map<int64_t, std::shared_ptr<KeptCall>> calls_;  ///< By number of the operation.
  int64_t num_operations_ = 0;
};

/// Keeps matrix products, convolutions and attention, which cost far more than their bytes.
KeepRule keep_products();

}  // namespace hanji::lens
