// Counts what a rank's thread allocates to start prepared calls once they are warm: nothing.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <new>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/prepare.h"

namespace {
thread_local int64_t num_allocations = 0;
}

void* operator new(size_t bytes) {
  ++num_allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hanji::comm {
namespace {

using schedule::Routine;

constexpr const char* kLongLabel = "a label that does not fit into a short string";

/// What a hundred rounds of `round` allocate on this thread after some to warm up.
int64_t allocated_by(const std::function<void()>& round) {
  for (int i = 0; i < 32; ++i) round();
  const int64_t before = num_allocations;
  for (int i = 0; i < 100; ++i) round();
  return num_allocations - before;
}

TEST(CommAllocations, AreNoneWherePreparedCallsStartAgain) {
  internal::run_ranks(2, [](const Group& group) {
    at::Tensor small = group.heap().zeros({2}, at::kFloat, "test");
    at::Tensor large = group.heap().zeros({100'000}, at::kFloat, "test");
    at::Tensor outside = at::zeros({5000}), share = at::zeros({2500});
    const std::vector<int64_t> shares = {1000, 4000};
    at::Tensor mine = at::zeros({shares[group.rank()]});
    Call sum_small = prepare(Routine::kAllReduce, at::kFloat, {2}, group, {.label = kLongLabel});
    Call sum_large = prepare(Routine::kAllReduce, at::kFloat, {100'000}, group);
    Call gather = prepare(Routine::kAllGather, at::kFloat, {2500}, group);
    Call uneven = prepare(Routine::kAllGather, at::kFloat, shares, group, {.label = kLongLabel});
    EXPECT_EQ(allocated_by([&] {
                Work works[] = {sum_small.start(small), sum_large.start(large),
                                gather.start(outside, share)};
                for (Work& work : works) work.wait();
                uneven.start(outside, mine).wait();
              }),
              0);
    // The counter counts: a plain call keeps its label and counts in memory of its own.
    EXPECT_GE(allocated_by([&] { all_reduce(small, group, {.label = kLongLabel}).wait(); }), 100);
  });
}

}  // namespace
}  // namespace hanji::comm
