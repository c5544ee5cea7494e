#pragma once

#include <chrono>

/// Stands in for Gloo's own header, which the wheels of libtorch do not ship. ProcessGroupGloo.hpp
/// holds Gloo objects through pointers only, so names are enough.
namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
