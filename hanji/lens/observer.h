#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <optional>

#include "hanji/lens/operation.h"

namespace hanji::lens {

/// Sees every operation that a thread asks of libtorch while a Scope is open: those of unmodified
/// torch::nn modules too, which have no hooks.
///
/// Order   what an operation is made of is not seen: at::linear is one, torch::nn::Linear is
///         aten::t and aten::addmm (or aten::matmul). before() of several observers runs in the
///         order in which their scopes were opened, after() in the opposite one.
/// Errors  what a callback throws reaches the caller of the operation, which then is not made (or
///         whose results are lost). An operation that throws has failed() instead of after().
/// Thread  the thread of the Scope. Operations that a callback runs are not observed.
class Observer {
 public:
  virtual ~Observer() = default;
  /// May run any code first, as long as the arguments keep their shapes: gather what a parameter
  /// holds, for example. Their device and memory are looked at afterwards.
  virtual void before(const Operation&) {}
  /// May make an operation of one result in its stead, and return that; before() of all observers has
  /// run, and the first that does so is taken. The operation itself is then not made.
  virtual std::optional<at::Tensor> replace(const Operation&) { return std::nullopt; }
  /// May hook the results' gradients.
  virtual void after(const Operation&) {}
  /// Instead of after(), where the operation, or what replaced it, threw; its arguments are gone. May throw what the
  /// caller then gets in its stead.
  virtual void failed(const std::exception&) {}
};

/// Shows this thread's operations to `observer` until the scope ends; scopes may overlap in any way.
///
/// Order   a backward() that is called within the scope is observed as far as it runs on this
///         thread, which it does on CPUs.
/// Cost    0.1 to 0.2 us per operation of this thread while any scope is open, else nothing.
/// Errors  throws kUnsupported if another library of this process took libtorch's dispatch key
///         DeferredInit, which has room for one.
/// Thread  ends on the thread that opened it.
class Scope {
 public:
  explicit Scope(Observer& observer);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Observer* observer_;
};

/// Operations of this thread go unseen until its end: for one's own, within a scope.
class Pause {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::DeferredInit};
};

}  // namespace hanji::lens
