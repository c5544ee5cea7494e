#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/layout/flat.h"

namespace hanji::parallel {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< Applied to tensors of two or more dimensions only.
};

/// What an update reads and writes besides the parameters: one tensor of each per parameter, of as
/// many elements.
struct AdamWTensors {
  std::vector<at::Tensor> gradients, first_moments, second_moments;
};

/// AdamW on flat buffers: one fused pass over parameters, gradients and both moments.
///
/// Shape   parameters, gradients and moments share one flat layout; moments start at zero.
/// Cost    28 bytes of memory traffic per fp32 parameter.
/// Source  Loshchilov & Hutter, Decoupled weight decay regularization, ICLR 2019, algorithm 2.
class FlatAdamW {
 public:
  /// `parameters[i]` lies at `layout.offsets[i]` of `flat_parameters`; gradients likewise.
  FlatAdamW(const std::vector<at::Tensor>& parameters, const layout::FlatLayout& layout,
            const at::Tensor& flat_gradients, const AdamWOptions& options);

  /// The same where the tensors lie anywhere, such as the pieces of a shard; first_moment() and
  /// second_moment() are undefined then. Pieces that begin at multiples of 64 elements of a
  /// parameter have the bits that they have in the whole.
  FlatAdamW(const std::vector<at::Tensor>& parameters, const AdamWTensors& tensors,
            const AdamWOptions& options);

  /// One update with gradients divided by `gradient_divisor` (tokens, clipping) on the way.
  void step(double learning_rate, double gradient_divisor);

  /// Moments in the flat layout, and the number of updates made; write to resume.
  at::Tensor first_moment() const { return first_moment_; }
  at::Tensor second_moment() const { return second_moment_; }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t updates) { num_updates_ = updates; }

 private:
  struct Pieces {
    std::vector<at::Tensor> parameters, gradients, first_moments, second_moments, steps;
    double weight_decay = 0;
  };
  void add(const at::Tensor& parameter, at::Tensor gradient, at::Tensor first_moment,
           at::Tensor second_moment);
  void update(Pieces& pieces, double learning_rate, double gradient_divisor);

  AdamWOptions options_;
  at::Tensor first_moment_;
  at::Tensor second_moment_;
  at::Tensor step_;
  Pieces decayed_;
  Pieces plain_;
  int64_t num_updates_ = 0;
};

}  // namespace hanji::parallel
