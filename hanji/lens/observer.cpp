#include "hanji/lens/observer.h"

#include <torch/library.h>

#include <algorithm>
#include <exception>

#include "hanji/base/status.h"
#include "hanji/lens/internal/interceptor.h"

namespace hanji::lens {
namespace {

constexpr auto kKey = c10::DispatchKey::DeferredInit;

struct Watchers {
  std::vector<Observer*> observers;
  Interceptor* interceptor = nullptr;
  int depth = 0;  ///< Operations that this one is a part of.

  /// The dispatcher stops here only while there is somebody to tell.
  void switch_key() const {
    c10::impl::tls_set_dispatch_key_included(kKey, !observers.empty() || interceptor != nullptr);
  }
};

Watchers& watchers() {
  thread_local Watchers mine;
  return mine;
}

/// Counts the operations that are being made, for as long as it lives.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) { ++depth_; }
  ~Depth() { --depth_; }

 private:
  int& depth_;
};

void make(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (Interceptor* interceptor = watchers().interceptor) {
    interceptor->call(handle, keys, *stack);
  } else {
    // From the top again, for a callback may have moved an argument to another device.
    handle.callBoxed(stack);
  }
}

std::optional<at::Tensor> replaced(const Watchers& mine, const Operation& operation) {
  for (size_t i = 0; i < mine.observers.size(); ++i) {
    if (auto result = mine.observers[i]->replace(operation)) return result;
  }
  return std::nullopt;
}

/// Leaves the results on the stack.
void make_or_replace(const Watchers& mine, const Operation& operation,
                     const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  try {
    if (const auto result = replaced(mine, operation)) {
      torch::jit::drop(*stack, operation.arguments().size());
      torch::jit::push(*stack, *result);
    } else {
      make(handle, keys, stack);
    }
  } catch (const std::exception& error) {
    for (size_t i = mine.observers.size(); i > 0; --i) {
      if (i <= mine.observers.size()) mine.observers[i - 1]->failed(error);
    }
    throw;
  }
}

/// Autograd's own threads inherit the key from the one that called backward(), but no watchers.
void watch(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  Watchers& mine = watchers();
  const Depth depth(mine.depth);
  if (mine.depth > 1) return make(handle, keys, stack);  // a part: for an interceptor only
  Operation operation(handle, *stack);
  // By index: a callback may open or close scopes.
  for (size_t i = 0; i < mine.observers.size(); ++i) mine.observers[i]->before(operation);
  make_or_replace(mine, operation, handle, keys, stack);
  operation.finish();
  for (size_t i = mine.observers.size(); i > 0; --i) {
    if (i <= mine.observers.size()) mine.observers[i - 1]->after(operation);
  }
}

/// On first use, not on start: a program that only links this library is as it was.
void register_once() {
  static const bool registered = [] {
    // Never destroyed: the dispatcher may be gone by then.
    static auto* library = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    try {
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
    } catch (const c10::Error& error) {
      throw Error(base::unsupported(
          "lens: another library of this process already sees the operations of libtorch through "
          "the dispatch key DeferredInit, which has room for one; load hanji without it. libtorch "
          "says: " +
          std::string(error.what_without_backtrace())));
    }
    return true;
  }();
  static_cast<void>(registered);
}

/// Lets the key through again, below an operation that is being made.
class Resume {
 public:
  Resume() : former_(c10::impl::tls_is_dispatch_key_excluded(kKey)) {
    c10::impl::tls_set_dispatch_key_excluded(kKey, false);
  }
  ~Resume() { c10::impl::tls_set_dispatch_key_excluded(kKey, former_); }

 private:
  bool former_;
};

}  // namespace

bool is_composite(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

void call_parts(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                std::vector<c10::IValue>& stack) {
  const Resume resume;
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
}

Scope::Scope(Observer& observer) : observer_(&observer) {
  register_once();
  watchers().observers.push_back(observer_);
  watchers().switch_key();
}

Scope::~Scope() {
  auto& observers = watchers().observers;
  const auto mine = std::find(observers.rbegin(), observers.rend(), observer_);
  if (mine != observers.rend()) observers.erase(std::next(mine).base());
  watchers().switch_key();
}

InterceptorScope::InterceptorScope(Interceptor& interceptor) {
  register_once();
  former_ = std::exchange(watchers().interceptor, &interceptor);
  watchers().switch_key();
}

InterceptorScope::~InterceptorScope() {
  watchers().interceptor = former_;
  watchers().switch_key();
}

}  // namespace hanji::lens
