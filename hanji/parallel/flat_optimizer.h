#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/layout/flat.h"
#include "hanji/layout/range.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/optimizer.h"

namespace hanji::parallel {

/// What a parameter group sets for its members.
struct ParameterGroup {
  double learning_rate_factor = 1;  ///< Times the learning rate of step(); 0 freezes.
  double weight_decay = 0;
};

/// The group of a parameter, asked once when the optimizer is made.
using GroupRule = std::function<ParameterGroup(const NamedParameter&)>;

/// Decays tensors of two or more dimensions and leaves vectors alone, all at one learning rate.
GroupRule decay_matrices(double weight_decay);

/// The part of one parameter that lies in a part of a flat buffer.
struct FlatPiece {
  std::string name;
  std::vector<int64_t> shape;  ///< Of the whole parameter.
  int64_t first = 0;           ///< Its element of the parameter that comes first here.
  layout::Range range;         ///< Where it lies, from the start of the part; may be empty.
  ParameterGroup group;
};

/// What lies of each parameter in [part.begin, part.end) of the buffer that `layout` describes.
///
/// Result  one piece per parameter, in their order: all parts of a buffer list the same parameters.
/// Order   part begins and ends at multiples of 64 elements or at an end of the layout: then a
///         piece has the bits that the same elements have in a whole parameter.
std::vector<FlatPiece> flat_pieces(const std::vector<NamedParameter>& parameters,
                                   const layout::FlatLayout& layout, layout::Range part,
                                   const GroupRule& rule);

class OffloadFile;

/// Where elements lie in a file; nowhere: they are in memory.
struct FilePlace {
  std::shared_ptr<OffloadFile> file;
  int64_t at = 0;  ///< Their first byte.
  explicit operator bool() const { return file != nullptr; }
};

/// Parameters and gradients that one rank updates: equally long, on one device, of one dtype.
struct FlatPart {
  at::Tensor parameters;
  at::Tensor gradients;
  std::vector<FlatPiece> pieces;
  /// Gives state its memory, which need not be there between steps; empty: memory as usual.
  std::function<at::Tensor(const at::Tensor& like)> zeros_like = {};
  /// What lies in a file has no memory, and only offloaded() can update it.
  FilePlace parameters_in = {};
  FilePlace gradients_in = {};
};

/// For optimizers in memory. Errors: throws kUnsupported, naming `caller`, if the part, or a half of
/// it, lies in a file.
void check_in_memory(const FlatPart& part, std::string_view caller);

/// What an optimizer keeps for each element of a part, zeros at first.
at::Tensor zero_state(const FlatPart& part);

/// Adds a vector up over all ranks that hold parts of the same parameters, in place.
using SumOverParts = std::function<void(at::Tensor&)>;

/// An optimizer of a part of the flat buffers: all of them on one rank, a shard, or the range of a
/// server. Parts update alone what a whole buffer updates together, with the same bits, but for
/// Adafactor, whose statistics are sums over a parameter.
class FlatOptimizer {
 public:
  virtual ~FlatOptimizer() = default;

  /// One update with gradients divided by `gradient_divisor` on the way; what is left in the
  /// gradients is undefined.
  virtual void step(double learning_rate, double gradient_divisor) = 0;
  /// The state that is kept between steps; element-wise ones lie as the parameters do. Write to
  /// them to resume.
  virtual std::vector<NamedParameter> state() const = 0;
  /// Whether each element is updated by itself, so that a part may be updated piece by piece.
  virtual bool is_element_wise() const { return true; }

  /// Of state(), counted.
  int64_t state_bytes() const;
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t updates) { num_updates_ = updates; }

 protected:
  int64_t num_updates_ = 0;
};

/// Makes the optimizer of a part, when its buffers are there.
using MakeOptimizer =
    std::function<std::unique_ptr<FlatOptimizer>(FlatPart part, const SumOverParts& sum)>;

/// AdamW. State: 2 elements per parameter. The weight decay of `options` is not read: it is that of
/// the piece's group.
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
/// Errors  throws kUnsupported but for float32 and float64 on the CPU.
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
/// `sum` is called twice per step, by the holders of all parts together; none: the part is all.
/// Result  sums in float64; they follow the parts, so other parts give other last bits.
/// Errors  throws kUnsupported but for float32 and float64 on the CPU.
/// Source  Shazeer & Stern, Adafactor, ICML 2018, algorithm 4, as in torch.optim.Adafactor.
std::unique_ptr<FlatOptimizer> flat_adafactor(FlatPart part, const AdafactorOptions& options = {},
                                              SumOverParts sum = {});

}  // namespace hanji::parallel
