// Counts what the engine allocates once it is warm: nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "hanji/schedule/all_reduce.h"
#include "hanji/test/run_group.h"

namespace {
std::atomic<int64_t> num_allocations = 0;
}

void* operator new(size_t bytes) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hanji::shm {
namespace {

using test::call_of;
using test::Member;
using test::share;

TEST(Allocations, AreNoneAfterTheFirstCalls) {
  const auto flat = share(schedule::all_reduce_flat(2, 2));
  const auto direct = share(schedule::all_reduce_direct(2, 5000));
  const auto staged = share(schedule::all_reduce_staged(2, 5000, 1000));
  test::run_group(2, [&](Member& member) {
    std::vector<float> outside(5000);
    std::vector<Call> calls = {call_of(flat), call_of(direct), call_of(staged)};
    for (Call& call : calls) call.input = call.output = outside.data();
    calls[1].input = calls[1].output = member.allocate<float>(5000);
    calls[1].label = "a label that does not fit into a short string";
    const auto run_all = [&](int rounds) {
      for (int round = 0; round < rounds; ++round) {
        for (const Call& call : calls) base::throw_if_error(member.run(call));
      }
    };
    run_all(16);  // every entry of the ring of operations has held every label
    base::throw_if_error(member.run(calls[0]));
    const int64_t before = num_allocations.load();
    run_all(50);
    // Both ranks end the last call before either looks.
    base::throw_if_error(member.run(calls[0]));
    EXPECT_EQ(num_allocations.load(), before);
    base::throw_if_error(member.run(calls[0]));
  });
}

}  // namespace
}  // namespace hanji::shm
