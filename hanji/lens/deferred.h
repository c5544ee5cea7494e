#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "hanji/layout/flat.h"
#include "hanji/layout/range.h"

namespace torch::nn {
class Module;
}

namespace hanji::lens {

/// What a module's parameters and buffers would hold, without holding it: any range of elements
/// can be computed, by any process, at any time.
///
/// Order   first the parameters, as module.parameters() has them, then the buffers; tied ones once.
/// Result  equal bits for any ranges, ranks and numbers of threads. Random values come from counters
///         keyed by (seed, which draw of the construction, element); they are not those of plain
///         construction under torch::manual_seed. Operations that mix elements (orthogonal_) are
///         repeated whole and cut; their bits may depend on threads where libtorch's do.
/// Cost    nothing beside the range where each operation treats every element by itself, as all of
///         torch::nn's own initialisation does but for orthogonal_, sparse_, dirac_, eye_ and an
///         Embedding with padding_idx; there, the whole tensor for as long as the call takes.
/// Thread  any number may write at once, unless the construction drew by other operations than
///         uniform_, normal_, bernoulli_, rand, randn.
class InitialValues {
 public:
  int size() const;
  const std::string& name(int tensor) const;
  /// The module's own tensor.
  const at::Tensor& tensor(int tensor) const;
  /// The position of a tensor of the module, by identity; -1: none of them.
  int find(const at::Tensor& tensor) const;

  /// Of the values: equal numbers for equal seeds and constructions, in any process.
  uint64_t fingerprint(int tensor) const;
  uint64_t seed() const;
  /// The operation for which write() would refuse; empty: none.
  std::string refused(int tensor) const;

  /// Writes elements [range) of a tensor, in the order of its contiguous form, to `out`.
  ///
  /// Shape   out [range.size()], of any dtype and device.
  /// Errors  throws kInvalidArgument for a range or shape that does not fit, kUnsupported if the
  ///         construction cannot be repeated (resize_, set_), naming the operation.
  void write(int tensor, layout::Range range, const at::Tensor& out) const;

  /// Writes elements [range) of a flat buffer that holds the first of the tensors, at the offsets of
  /// `layout`; zeros between them.
  void write_flat(const layout::FlatLayout& layout, layout::Range range,
                  const at::Tensor& out) const;

  /// Gives every tensor that has no memory yet its own, and its values.
  void materialise(c10::Device device = c10::kCPU) const;

  struct State;
  explicit InitialValues(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// A construction in progress: while it lives, this thread's tensors are made without memory.
class Construction {
 public:
  explicit Construction(uint64_t seed);
  ~Construction();
  Construction(const Construction&) = delete;
  Construction& operator=(const Construction&) = delete;
  /// Ends it; `module` is what it made.
  InitialValues finish(const torch::nn::Module& module);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class Holder>
struct Deferred {
  Holder module;          ///< Its parameters and buffers are on the meta device.
  InitialValues initial;  ///< What they will hold.

  /// The module, all of it in memory, with its initial values.
  Holder materialise(c10::Device device = c10::kCPU) const {
    initial.materialise(device);
    return module;
  }
};

struct DeferredOptions {
  uint64_t seed = 1;  ///< Of the initial values.
};

/// Builds any module without memory: deferred([]{ return Net(...); }), where Net is a module's holder
/// or a std::shared_ptr to one.
///
/// Cost    0.3 to 3 us per operation of the constructors, and some hundred bytes for each that
///         initialises, whatever the sizes.
/// Errors  throws kUnsupported, naming the operation, for one that works on no tensor without
///         memory, or writes into a tensor from outside. What a constructor writes through a raw
///         pointer must be a tensor of at most 1 MiB, not touched by any operation before.
/// Thread  this one; threads that the constructors start build as usual.
template <class Build>
auto deferred(Build&& build, DeferredOptions options = {}) {
  using Holder = std::decay_t<decltype(build())>;
  Construction construction(options.seed);
  Holder module = std::forward<Build>(build)();
  auto initial = construction.finish(*module);
  return Deferred<Holder>{std::move(module), std::move(initial)};
}

}  // namespace hanji::lens
