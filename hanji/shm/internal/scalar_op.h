#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

/// What one combination of two elements is, for every type.
namespace hanji::shm::internal {

/// Integers wrap around; signed overflow is taken through unsigned arithmetic.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

struct Sum {
  template <class T>
  static T scalar(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};

struct Prod {
  template <class T>
  static T scalar(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};

// A NaN on the left is kept by the second condition, one on the right by the first being false.
struct Min {
  template <class T>
  static T scalar(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

struct Max {
  template <class T>
  static T scalar(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

// Of integers only.
struct BitAnd {
  template <class T>
  static T scalar(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <class T>
  static T scalar(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <class T>
  static T scalar(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace hanji::shm::internal
