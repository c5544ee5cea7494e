#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

namespace hanji::lens {

/// The state of libtorch's own generator of random numbers on the CPU.
inline at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

inline void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// At its end the generator goes on as if nothing had drawn from it meanwhile.
class [[nodiscard]] KeptGenerator {
 public:
  KeptGenerator() = default;
  /// Meanwhile it draws what it drew after `state` was taken.
  explicit KeptGenerator(const at::Tensor& state) { set_generator_state(state); }
  /// Meanwhile it is started at `seed`: for operations that draw more than a word per element and take
  /// no generator.
  explicit KeptGenerator(uint64_t seed) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  ~KeptGenerator() { set_generator_state(former_); }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Tensor former_ = generator_state();
};

}  // namespace hanji::lens
