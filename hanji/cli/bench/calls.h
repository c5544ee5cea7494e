#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "hanji/comm/group.h"
#include "hanji/report/bench_case.h"

namespace hanji::cli {

/// Makes one call and waits for it. In place both tensors are views of one memory; a rank without
/// input or output gets an undefined tensor.
using BenchCall = std::function<void(at::Tensor& input, at::Tensor& output)>;

/// The calls of `comm`.
BenchCall call_of_group(const report::BenchCase& call, const comm::Group& group);

/// Those of Gloo itself, without anything of ours around it; made once and kept.
class GlooCalls {
 public:
  /// Order   every rank of `meet` at once.
  /// Errors  throws Error(kUnsupported) where this libtorch has no Gloo.
  explicit GlooCalls(const comm::Group& meet);
  ~GlooCalls();

  /// Errors  throws Error(kUnsupported) for what Gloo has not.
  BenchCall call_of(const report::BenchCase& call) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hanji::cli
