#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hanji/test/model/machine.h"

/// What stands for std::atomic and its neighbours in code that runs on a Machine; without one they
/// do what they say.
namespace hanji::test::model {

template <class T>
class Atomic {
  static_assert(std::is_integral_v<T> && sizeof(T) <= 8);

 public:
  static constexpr bool is_always_lock_free = true;

  Atomic() noexcept = default;
  constexpr Atomic(T value) noexcept : value_(value) {}

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    Machine* machine = ready_machine();
    return machine == nullptr ? value_ : static_cast<T>(machine->load(&value_, sizeof(T), order));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    Machine* machine = ready_machine();
    if (machine == nullptr) {
      value_ = value;
    } else {
      machine->store(&value_, sizeof(T), static_cast<uint64_t>(value), order);
    }
  }
  T fetch_add(T more, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [more](T old) { return std::optional<T>(static_cast<T>(old + more)); });
  }
  T fetch_sub(T less, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [less](T old) { return std::optional<T>(static_cast<T>(old - less)); });
  }
  T fetch_or(T bits, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [bits](T old) { return std::optional<T>(static_cast<T>(old | bits)); });
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order order = std::memory_order_seq_cst) {
    const T wanted = expected;
    expected = update(order, [&](T old) {
      return old == wanted ? std::optional<T>(desired) : std::optional<T>();
    });
    return expected == wanted;
  }

 private:
  template <class F>
  T update(std::memory_order order, F change) {
    Machine* machine = ready_machine();
    if (machine == nullptr) {
      const T old = value_;
      if (const std::optional<T> changed = change(old)) value_ = *changed;
      return old;
    }
    return static_cast<T>(machine->update(&value_, sizeof(T), order, [&](uint64_t old) {
      const std::optional<T> changed = change(static_cast<T>(old));
      return changed ? std::optional<uint64_t>(static_cast<uint64_t>(*changed)) : std::nullopt;
    }));
  }

  T value_{};
};

inline void full_fence() {
  if (Machine* machine = ready_machine()) machine->fence();
}
inline void note_read(const void* data, size_t bytes) {
  if (Machine* machine = ready_machine()) machine->note_read(data, bytes);
}
inline void note_write(const void* data, size_t bytes) {
  if (Machine* machine = ready_machine()) machine->note_write(data, bytes);
}
inline void futex_wait(const void* word, uint32_t expected) {
  if (Machine* machine = ready_machine()) machine->futex_wait(word, expected);
}
inline void futex_wake_all(const void* word) {
  if (Machine* machine = ready_machine()) machine->futex_wake_all(word);
}
/// Between two polls.
inline void pause() {
  if (Machine* machine = ready_machine()) machine->pause();
}
/// Waits until another thread has ended. Whether it was killed.
inline bool await_end(int other) {
  Machine* machine = ready_machine();
  return machine != nullptr && machine->await_end(other);
}
/// Ends the exploration unless `holds`.
inline void check(bool holds, const std::string& otherwise) {
  if (Machine* machine = ready_machine(); machine != nullptr && !holds) {
    machine->violate(otherwise);
  }
}

}  // namespace hanji::test::model
