#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <mutex>

namespace hanji::lens {

/// libtorch's own generator, started at `key` and put back afterwards: for operations that draw
/// more than a word per element and take no generator.
class SeededGenerator {
 public:
  explicit SeededGenerator(uint64_t key) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::scoped_lock lock(generator_.mutex());
    former_ = generator_.get_state();
    generator_.set_current_seed(key);
  }
  ~SeededGenerator() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(former_);
  }

 private:
  at::Generator generator_;
  at::Tensor former_;
};

}  // namespace hanji::lens
