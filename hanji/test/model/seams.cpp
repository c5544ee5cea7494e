// What the engine's code asks the system for, when it runs in the model: the futex, the clock, the
// scheduler. The linker puts the last two in place of the real ones (--wrap).
#include <cstdint>

#include "hanji/shm/internal/futex.h"
#include "hanji/test/model/memory.h"
#include "hanji/test/model/model_time.h"

namespace hanji::shm::internal {

// No sleep ends by itself here: a thread that needs that has lost a wake-up.
void futex_wait(Atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds) {
  test::model::futex_wait(&word, expected);
}

void futex_wake_all(Atomic<uint32_t>& word) { test::model::futex_wake_all(&word); }

}  // namespace hanji::shm::internal

extern "C" {

int __real_sched_yield();
int64_t __real__ZN5hanji4base6now_nsEv();

// Between two polls of a rank that has not slept yet.
int __wrap_sched_yield() {
  const auto* machine = hanji::test::model::current_machine();
  if (machine == nullptr) return __real_sched_yield();
  hanji::test::model::scrub_stack();
  if (!hanji::test::model::sleeps_at_once()) hanji::test::model::pause();
  return 0;
}

int64_t __wrap__ZN5hanji4base6now_nsEv() {
  const auto* machine = hanji::test::model::current_machine();
  if (machine == nullptr) return __real__ZN5hanji4base6now_nsEv();
  hanji::test::model::scrub_stack();
  return hanji::test::model::next_time();
}

}  // extern "C"
