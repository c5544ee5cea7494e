#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/parallel/flat_part.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// Sums a vector in place over all ranks that hold parts of the same parameters.
using SumOverParts = std::function<void(at::Tensor&)>;

/// An optimizer of a part of the flat buffers: all of them on one rank, a shard, or the range of a
/// server. Updating parts gives the bits of updating the whole buffer, except for Adafactor, whose
/// statistics are sums over a parameter.
class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;

  /// Updates once, with gradients divided by `gradient_divisor`; the gradients are undefined
  /// afterwards.
  virtual void step(double learning_rate, double gradient_divisor) = 0;
  /// The state between steps; element-wise state has the layout of the parameters. Write to it to
  /// resume.
  virtual std::vector<NamedParameter> state() const = 0;
  /// Whether each element is updated independently, so that a part may be updated piece by piece.
  virtual bool is_element_wise() const { return true; }

  /// Whether round_into() is served.
  virtual bool rounds() const { return false; }
  /// Makes the next step(), only that, write parameters in bf16 as well, of each piece of the part into that
  /// tensor, of its elements up to a multiple of 16; undefined: not that piece.
  virtual void round_into(std::vector<at::Tensor> /*rounded*/) {}

  /// Of state(), counted.
  int64_t state_bytes() const;
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t updates) { num_updates_ = updates; }

 protected:
  int64_t num_updates_ = 0;
};

/// Makes the optimizer of a part whose buffers exist.
using MakeOptimizer =
    std::function<std::unique_ptr<FlatOptimizer>(FlatPart part, const SumOverParts& sum)>;

/// One optimizer of several parts in memory, such as Sharded::flat_parts(): `make` makes one for each,
/// without a sum over ranks. state() has the names of offloaded(): "part 0 first_moment".
std::unique_ptr<FlatOptimizer> optimizer_of_parts(const MakeOptimizer& make,
                                                  std::vector<FlatPart> parts);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

/// AdamW, with the weight decay of each piece's group. State: 2 elements per parameter.
///
/// It rounds, too, if the parameters are float32 on the CPU.
/// Cost    28 bytes of memory traffic per fp32 parameter, one pass.
/// Source  Loshchilov & Hutter, Decoupled weight decay regularization, ICLR 2019, algorithm 2.
std::unique_ptr<FlatOptimizer> flat_adamw(FlatPart part, const AdamWOptions& options = {});

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

/// Stochastic gradient descent. State: 1 element per parameter with momentum, else none.
/// Errors  throws kInvalidArgument for Nesterov without momentum or with dampening.
std::unique_ptr<FlatOptimizer> flat_sgd(FlatPart part, const SgdOptions& options = {});

struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
};

/// Lion. State: 1 element per parameter.
///
/// Cost    20 bytes of memory traffic per fp32 parameter, one pass.
/// Errors  throws kUnsupported unless float32 or float64 on the CPU.
/// Source  Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, program 1.
std::unique_ptr<FlatOptimizer> flat_lion(FlatPart part, const LionOptions& options = {});

struct AdafactorOptions {
  double beta2_decay = -0.8;
  double epsilon1 = -1;  ///< Below 0: the dtype's machine epsilon.
  double epsilon2 = 1e-3;
  double clip_threshold = 1;
};

/// Adafactor. State: a row and a column per matrix, an element per parameter of vectors.
///
/// `sum` is called twice per step, by the holders of all parts together; empty: one part.
/// Result  sums in float64 over parts; another split into parts gives other last bits.
/// Errors  throws kUnsupported unless float32 or float64 on the CPU.
/// Source  Shazeer & Stern, Adafactor, ICML 2018, algorithm 4, as in torch.optim.Adafactor.
std::unique_ptr<FlatOptimizer> flat_adafactor(FlatPart part, const AdafactorOptions& options = {},
                                              SumOverParts sum = {});

}  // namespace hanji::parallel
