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

/// What a parameter group sets for its members.
struct ParameterGroup {
  double learning_rate_factor = 1;  ///< Times the learning rate of step(); 0 freezes.
  double weight_decay = 0;
};

/// The group of a parameter, asked once when the optimizer is made.
using GroupRule = std::function<ParameterGroup(const NamedParameter&)>;

/// Decays tensors of two or more dimensions and leaves vectors alone, all at one learning rate.
GroupRule decay_matrices(double weight_decay = 0.1);

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

/// All of the parameters: moves them into `values`, each at its offset of `layout`, in which
/// `gradients` lie too.
/// Errors  throws kInvalidArgument if a dtype or size does not match.
FlatPart whole_part(const std::vector<NamedParameter>& parameters, const layout::FlatLayout& layout,
                    const at::Tensor& values, const at::Tensor& gradients, const GroupRule& rule);

/// For optimizers in memory. Errors: throws kUnsupported, naming `caller`, if the part, or a half of
/// it, lies in a file.
void check_in_memory(const FlatPart& part, std::string_view caller);

/// What an optimizer keeps for each element of a part, zeros at first.
at::Tensor zero_state(const FlatPart& part);

}  // namespace hanji::parallel
