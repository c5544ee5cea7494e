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

namespace hanji::parallel {

class OffloadFile;

/// The settings of a parameter group.
struct ParameterGroup {
  double learning_rate_factor = 1;  ///< Times the learning rate of step(); 0 freezes.
  double weight_decay = 0;
};

/// The group of a parameter; called once when the optimizer is made.
using GroupRule = std::function<ParameterGroup(const NamedParameter&)>;

/// Applies weight decay to tensors of two or more dimensions, not to vectors; one learning rate.
GroupRule decay_matrices(double weight_decay = 0.1);

/// The elements of one parameter in a part of a flat buffer.
struct FlatPiece {
  std::string name;
  std::vector<int64_t> shape;  ///< Of the whole parameter.
  int64_t first = 0;           ///< The first element of the parameter here.
  layout::Range range;         ///< From the start of the part; may be empty.
  ParameterGroup group;
};

/// The elements of each parameter in [part.begin, part.end) of a buffer of this layout.
///
/// Result  one piece per parameter, in their order: all parts of a buffer list the same parameters.
/// Order   part begins and ends at multiples of 64 elements or at an end of the layout: then a
///         piece has the bits that the same elements have in a whole parameter.
std::vector<FlatPiece> flat_pieces(const std::vector<NamedParameter>& parameters,
                                   const layout::FlatLayout& layout, layout::Range part,
                                   const GroupRule& rule);

/// The place of elements in a file; null: in memory.
struct FilePlace {
  std::shared_ptr<OffloadFile> file;
  int64_t at = 0;  ///< Their first byte.
  explicit operator bool() const { return file != nullptr; }
};

/// Parameters and gradients that one rank updates: equal length, one device, one dtype.
struct FlatPart {
  at::Tensor parameters;
  at::Tensor gradients;
  std::vector<FlatPiece> pieces;
  /// Allocates the state, whose memory may be absent between steps; empty: as usual.
  std::function<at::Tensor(const at::Tensor& like)> zeros_like = {};
  /// A part in a file has no memory; only offloaded() can update it.
  FilePlace parameters_in = {};
  FilePlace gradients_in = {};
};

/// Moves all parameters into `values`, each at its offset of `layout`, which `gradients` have too.
/// Errors  throws kInvalidArgument if a dtype or size does not match.
FlatPart whole_part(const std::vector<NamedParameter>& parameters, const layout::FlatLayout& layout,
                    const at::Tensor& values, const at::Tensor& gradients, const GroupRule& rule);

/// For optimizers in memory. Errors: throws kUnsupported, naming `caller`, if parameters or gradients
/// of the part are in a file.
void check_in_memory(const FlatPart& part, std::string_view caller);
/// The same, and if the parameters are not float32 or float64 on the CPU.
void check_reals_in_memory(const FlatPart& part, std::string_view caller);

/// Optimizer state with one value per element of a part, initially zero.
at::Tensor zero_state(const FlatPart& part);

}  // namespace hanji::parallel
