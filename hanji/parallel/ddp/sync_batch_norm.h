#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "hanji/comm/group.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// Batch normalisation with the statistics of all ranks' batches together, for a BatchNorm1d, 2d or
/// 3d that the module already has: its parameters, running statistics and mode stay where they are.
///
///   hanji::SyncBatchNorm norm(*net.norm, group);   // once
///   x = norm(net.conv(x));                          // where net.norm->forward(...) stood
///
/// (In C++ forward() is not virtual, so a module cannot be exchanged behind its owner's back.)
/// Shape   [N, C, ...]; N may differ between ranks, and be 0 on some.
/// Result  of one process on the ranks' batches one after another, and its gradients, where the loss
///         is the sum of all ranks' (data_parallel() averages both alike). Sums in float64; the two
///         passes for mean and variance keep large means exact. 16-bit inputs are normalised in
///         float32. In evaluation, the plain batch_norm of the running statistics.
/// Order   in training every rank calls it, and runs its backward. It has a group of its own, so that
///         the reductions of data_parallel() may come in between.
/// Cost    two all_reduces of C values forward, two backward.
/// Errors  throws kInvalidArgument for a module that is no BatchNorm, another number of channels, or
///         fewer than two values per channel on all ranks together; kUnsupported in training where
///         its weight is trained with stable bits, which statistics of all ranks' batches cannot have.
class SyncBatchNorm {
 public:
  /// Order   every rank of the group makes it.
  SyncBatchNorm(torch::nn::Module& norm, const comm::Group& group);

  at::Tensor operator()(const at::Tensor& input) const;

 private:
  struct Moments {
    at::Tensor centered, variance;
    at::Tensor mean;
    double count = 0;
  };
  void check_input(const at::Tensor& input) const;
  void check_bits() const;
  Moments moments_of(const at::Tensor& input) const;
  void track(const Moments& moments) const;

  torch::nn::Module* norm_;
  comm::Group group_;
  at::Tensor weight_, bias_, running_mean_, running_variance_, num_batches_;
  int64_t num_features_ = 0;
  double epsilon_ = 0;
  std::optional<double> momentum_;  ///< None: the mean over all batches.
};

}  // namespace hanji::parallel
