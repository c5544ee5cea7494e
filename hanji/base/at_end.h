#pragma once

#include <utility>

namespace hanji::base {

/// Calls a function at the end of its scope, which must not throw.
template <class Function>
class [[nodiscard]] AtEnd {
 public:
  explicit AtEnd(Function function) : function_(std::move(function)) {}
  ~AtEnd() { function_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Function function_;
};

}  // namespace hanji::base
