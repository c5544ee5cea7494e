#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hanji/layers/flow.h"
#include "hanji/parallel/fsdp/cast_tensors.h"

namespace torch::nn {
class Module;
}
namespace hanji::layers {
class Model;
}

namespace hanji::parallel {

class ShardedModel;

/// What a precision policy wants of one call; empty: its tensors stay as they are.
struct Casts {
  std::optional<at::ScalarType> inputs = {};
  std::optional<at::ScalarType> outputs = {};
};

/// One call of a module that may be a unit of fully_shard(): whole from here to leave(). What
/// Unit does around forward(), for callers with a forward of their own.
class UnitCall {
 public:
  explicit UnitCall(const torch::nn::Module& module);
  UnitCall(std::shared_ptr<ShardedModel> model, size_t unit);
  UnitCall(const UnitCall&) = delete;
  UnitCall& operator=(const UnitCall&) = delete;
  /// After an exception the unit is sharded again, and nothing waits for its backward.
  ~UnitCall();

  /// `outputs`: all tensors through which a backward can come.
  void leave(const std::vector<at::Tensor>& outputs);

  /// For the caller to carry out, by cast_tensors(), before forward() and after leave().
  const Casts& casts() const { return casts_; }

 private:
  std::shared_ptr<ShardedModel> model_;  ///< Null: no unit, or left.
  size_t unit_ = 0;
  Casts casts_;
};

/// A scope in which the units that a layer of `model` reads are whole, for a model that fully_shard()
/// has sharded with UnitCalls::kLayers; of one that is not sharded it is the layer and nothing else.
/// Give it to every forward() of the model, within the scope of recomputation.
///
/// `model` outlives the scope.
layers::LayerScope unit_scope(const layers::Model& model);

/// The tensors in what a forward() returns. For types of your own write a function of this name
/// beside the type.
inline void collect_tensors(const at::Tensor& value, std::vector<at::Tensor>& tensors) {
  tensors.push_back(value);
}
template <class T>
void collect_tensors(const std::vector<T>& values, std::vector<at::Tensor>& tensors);
template <class T>
void collect_tensors(const std::optional<T>& value, std::vector<at::Tensor>& tensors);
template <class A, class B>
void collect_tensors(const std::pair<A, B>& values, std::vector<at::Tensor>& tensors);
template <class... T>
void collect_tensors(const std::tuple<T...>& values, std::vector<at::Tensor>& tensors);

template <class T>
void collect_tensors(const std::vector<T>& values, std::vector<at::Tensor>& tensors) {
  for (const T& value : values) collect_tensors(value, tensors);
}
template <class T>
void collect_tensors(const std::optional<T>& value, std::vector<at::Tensor>& tensors) {
  if (value) collect_tensors(*value, tensors);
}
template <class A, class B>
void collect_tensors(const std::pair<A, B>& values, std::vector<at::Tensor>& tensors) {
  collect_tensors(values.first, tensors);
  collect_tensors(values.second, tensors);
}
template <class... T>
void collect_tensors(const std::tuple<T...>& values, std::vector<at::Tensor>& tensors) {
  std::apply([&](const auto&... value) { (collect_tensors(value, tensors), ...); }, values);
}

/// A module to be called as a unit; see unit().
template <class Impl>
class Unit {
 public:
  explicit Unit(Impl& module) : module_(module) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    UnitCall call(module_);
    auto outputs = module_.forward(
        CastArgument<Arguments>(std::forward<Arguments>(arguments), call.casts().inputs).get()...);
    std::vector<at::Tensor> tensors;
    collect_tensors(outputs, tensors);
    call.leave(tensors);
    cast_result(outputs, call.casts().outputs);
    return outputs;
  }

 private:
  Impl& module_;
};

/// Calls a module as a unit of fully_shard(): unit(block)(x) is block->forward(x) with the block's
/// parameters whole. Where the module is no unit, it is forward() and nothing else, so a model that
/// is written with units runs unsharded too.
///
/// `module`: a module, or a holder or pointer of one, that outlives the call.
template <class Module>
auto unit(Module&& module) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::remove_cvref_t<Module>>) {
    return Unit(module);
  } else {
    return Unit(*module);
  }
}

}  // namespace hanji::parallel
