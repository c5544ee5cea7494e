#pragma once

#include <cstdint>
#include <string_view>

namespace hanji::trace {

/// What one of hanji's own kernels does, which no dispatcher of libtorch shows.
struct KernelWork {
  std::string_view name;  ///< "hanji::bias_gelu"
  double flops = 0;       ///< Of what it is asked for, as conventions count; 0: it moves bytes.
  int64_t bytes = 0;      ///< Each operand once.
};

/// Sees the kernels of hanji's own that a thread runs.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  virtual void begin(const KernelWork& work) = 0;
  virtual void end() = 0;
};

/// Shows this thread's kernels to `observer` until its end; the one before sees none meanwhile.
/// Thread  ends on the thread that opened it.
class KernelScope {
 public:
  explicit KernelScope(KernelObserver& observer);
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;
  ~KernelScope();

 private:
  KernelObserver* former_;
};

/// A kernel runs on this thread from birth to death. Cost: a comparison where nobody observes.
class OwnKernel {
 public:
  explicit OwnKernel(const KernelWork& work);
  OwnKernel(const OwnKernel&) = delete;
  OwnKernel& operator=(const OwnKernel&) = delete;
  ~OwnKernel();

 private:
  KernelObserver* observer_;
};

}  // namespace hanji::trace
