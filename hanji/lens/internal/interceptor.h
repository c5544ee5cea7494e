#pragma once

#include <c10/core/DispatchKeySet.h>

#include <vector>

#include "hanji/lens/observer.h"

namespace hanji::lens {

/// Makes each operation of a thread in the dispatcher's stead: may change its arguments, or do
/// something else as long as the stack then holds results.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  virtual void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                    std::vector<c10::IValue>& stack) = 0;
};

/// Whether the operation only asks for other ones: aten::matmul for aten::mm.
bool is_composite(const c10::OperatorHandle& handle);

/// From within an interceptor: makes the call, and sends its parts to the interceptor too.
void call_parts(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                std::vector<c10::IValue>& stack);

/// Puts an interceptor below this thread's observers; the innermost one open makes the calls.
class InterceptorScope {
 public:
  explicit InterceptorScope(Interceptor& interceptor);
  ~InterceptorScope();
  InterceptorScope(const InterceptorScope&) = delete;
  InterceptorScope& operator=(const InterceptorScope&) = delete;

 private:
  Interceptor* former_;
};

}  // namespace hanji::lens
