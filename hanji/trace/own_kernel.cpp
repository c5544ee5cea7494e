#include "hanji/trace/own_kernel.h"

#include <utility>

namespace hanji::trace {
namespace {

thread_local KernelObserver* own_kernel_observer = nullptr;

}  // namespace

KernelScope::KernelScope(KernelObserver& observer)
    : former_(std::exchange(own_kernel_observer, &observer)) {}

KernelScope::~KernelScope() { own_kernel_observer = former_; }

OwnKernel::OwnKernel(const KernelWork& work) : observer_(own_kernel_observer) {
  if (observer_ != nullptr) observer_->begin(work);
}

OwnKernel::~OwnKernel() {
  if (observer_ != nullptr) observer_->end();
}

}  // namespace hanji::trace
