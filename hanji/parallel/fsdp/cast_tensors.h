#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace hanji::parallel {

/// Gives the floating tensors in a value another dtype, as autograd sees it.
///
/// For types of your own write void cast_tensors(T& value, at::ScalarType dtype) beside the type;
/// what has no such function is left alone among arguments, and refused as a result.
void cast_tensor(at::Tensor& tensor, at::ScalarType dtype);

/// Throws kUnsupported: the result of a forward() is of a type whose tensors nobody can cast.
[[noreturn]] void refuse_to_cast_result();

/// How to cast a T: kPossible, and if so cast(value, dtype).
template <class T>
struct CastTensors {
  static constexpr bool kPossible = requires(T & value, at::ScalarType dtype) {
    cast_tensors(value, dtype);
  };
  static void cast(T& value, at::ScalarType dtype) { cast_tensors(value, dtype); }
};
template <>
struct CastTensors<at::Tensor> {
  static constexpr bool kPossible = true;
  static void cast(at::Tensor& value, at::ScalarType dtype) { cast_tensor(value, dtype); }
};
template <class T>
struct CastTensors<std::vector<T>> {
  static constexpr bool kPossible = CastTensors<T>::kPossible;
  static void cast(std::vector<T>& values, at::ScalarType dtype) {
    for (T& value : values) CastTensors<T>::cast(value, dtype);
  }
};
template <class T>
struct CastTensors<std::optional<T>> {
  static constexpr bool kPossible = CastTensors<T>::kPossible;
  static void cast(std::optional<T>& value, at::ScalarType dtype) {
    if (value) CastTensors<T>::cast(*value, dtype);
  }
};
template <class... T>
struct CastTensors<std::tuple<T...>> {
  static constexpr bool kPossible = (CastTensors<T>::kPossible || ...);
  template <class V>
  static void cast_one(V& value, at::ScalarType dtype) {
    if constexpr (CastTensors<V>::kPossible) CastTensors<V>::cast(value, dtype);
  }
  static void cast(std::tuple<T...>& values, at::ScalarType dtype) {
    std::apply([&](T&... value) { (cast_one(value, dtype), ...); }, values);
  }
};
template <class A, class B>
struct CastTensors<std::pair<A, B>> {
  static constexpr bool kPossible = CastTensors<A>::kPossible || CastTensors<B>::kPossible;
  static void cast(std::pair<A, B>& values, at::ScalarType dtype) {
    if constexpr (CastTensors<A>::kPossible) CastTensors<A>::cast(values.first, dtype);
    if constexpr (CastTensors<B>::kPossible) CastTensors<B>::cast(values.second, dtype);
  }
};

/// An argument on its way to forward(): itself, or where it is cast a copy of its handles.
template <class Argument>
class CastArgument {
 public:
  CastArgument(Argument&& value, std::optional<at::ScalarType> /*dtype*/) : value_(value) {}
  Argument&& get() { return static_cast<Argument&&>(value_); }

 private:
  std::remove_reference_t<Argument>& value_;
};
template <class Argument>
requires CastTensors<std::remove_cvref_t<Argument>>::kPossible class CastArgument<Argument> {
 public:
  CastArgument(Argument&& value, std::optional<at::ScalarType> dtype) : value_(value) {
    if (!dtype) return;
    CastTensors<Value>::cast(copy_.emplace(value), *dtype);
  }
  Argument&& get() {
    return copy_ ? static_cast<Argument&&>(*copy_) : static_cast<Argument&&>(value_);
  }

 private:
  using Value = std::remove_cvref_t<Argument>;
  std::remove_reference_t<Argument>& value_;
  std::optional<Value> copy_;
};

/// Casts what a forward() gave; without a dtype nothing happens.
template <class T>
void cast_result(T& value, std::optional<at::ScalarType> dtype) {
  if (!dtype) return;
  if constexpr (CastTensors<T>::kPossible) {
    CastTensors<T>::cast(value, *dtype);
  } else {
    refuse_to_cast_result();
  }
}

}  // namespace hanji::parallel
