#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

namespace torch {
class Library;
}

namespace hanji::lens {

/// Makes calls on tensors without memory, also where libtorch has no kernel that only tells shapes:
/// there the operation is made on a stand-in in memory, and its result forgotten. Such kernels are
/// registered when a call misses them, and for as long as this lives.
class MetaKernels {
 public:
  MetaKernels();
  ~MetaKernels();

  /// As handle.callBoxed(), below the observers; of tensors in memory, too.
  ///
  /// Cost    a missing kernel's result takes memory for the time of the call.
  /// Errors  throws kUnsupported, naming the operation, where that does not help.
  void call(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack);

 private:
  bool add(const std::string& error);

  std::vector<std::string> names_;
  std::vector<std::unique_ptr<torch::Library>> libraries_;
};

}  // namespace hanji::lens
