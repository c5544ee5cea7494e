#include "hanji/comm/heap_scope.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>

#include <optional>
#include <stdexcept>
#include <thread>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/lease.h"
#include "hanji/comm/message.h"

namespace hanji::comm {
namespace {

c10::Allocator* cpu_allocator() { return c10::GetAllocator(c10::kCPU); }

TEST(HeapScope, NewTensorsLieInTheHeapUntilItEnds) {
  c10::Allocator* const before = cpu_allocator();
  Heap heap = Heap::private_arena();
  at::Tensor kept;
  {
    const HeapScope scope(heap);
    kept = at::ones({1000}) * 2;
    EXPECT_TRUE(heap.contains(kept));
    EXPECT_GE(heap.usage().at("activations"), 4000u);
    EXPECT_GE(scope.counts().heap_tensors, 2);
    EXPECT_EQ(scope.counts().private_tensors, 0);
    EXPECT_FALSE(at::empty({0}).storage().data_ptr());
  }
  EXPECT_EQ(cpu_allocator(), before);
  EXPECT_FALSE(heap.contains(at::ones({1000})));
  EXPECT_EQ(kept.sum().item<float>(), 2000);
  kept.resize_({2000});
  EXPECT_FALSE(heap.contains(kept)) << "resized outside the scope";
  EXPECT_EQ(kept.narrow(0, 0, 1000).sum().item<float>(), 2000);
  EXPECT_EQ(heap.used_bytes(), 0u);
}

TEST(HeapScope, ATensorHoldsTheMappingAlive) {
  at::Tensor tensor;
  {
    const HeapScope scope(Heap::private_arena());
    tensor = at::ones({64}, at::kInt);
  }
  EXPECT_EQ(tensor.add_(1).sum().item<int64_t>(), 128);
}

TEST(HeapScope, TheInnermostServesAndTheOuterOneGoesOn) {
  c10::Allocator* const before = cpu_allocator();
  Heap outer_heap = Heap::private_arena(), inner_heap = Heap::private_arena();
  {
    const HeapScope outer(outer_heap, "outer");
    {
      const HeapScope inner(inner_heap, "inner");
      const at::Tensor tensor = at::ones({8});
      EXPECT_TRUE(inner_heap.contains(tensor));
      EXPECT_EQ(inner_heap.usage().count("inner"), 1u);
      EXPECT_EQ(outer.counts().heap_tensors, 0);
    }
    EXPECT_NE(cpu_allocator(), before);
    EXPECT_TRUE(outer_heap.contains(at::ones({8})));
  }
  EXPECT_EQ(cpu_allocator(), before);
}

TEST(HeapScope, EndsWithAnException) {
  c10::Allocator* const before = cpu_allocator();
  Heap heap = Heap::private_arena();
  EXPECT_THROW(
      {
        const HeapScope scope(heap);
        throw std::runtime_error("of the forward");
      },
      std::runtime_error);
  EXPECT_EQ(cpu_allocator(), before);
  EXPECT_FALSE(heap.contains(at::ones({8})));
}

TEST(HeapScope, IsOfOneThread) {
  c10::Allocator* const before = cpu_allocator();
  Heap heap = Heap::private_arena(), other_heap = Heap::private_arena();
  std::optional<HeapScope> scope(std::in_place, heap);
  at::Tensor from_thread;
  std::thread([&] {
    EXPECT_FALSE(heap.contains(at::ones({8}))) << "a thread without a scope";
    const HeapScope mine(other_heap);
    from_thread = at::ones({8});
    EXPECT_TRUE(other_heap.contains(from_thread));
  }).join();
  EXPECT_TRUE(heap.contains(at::ones({8})));
  scope.reset();
  EXPECT_EQ(cpu_allocator(), before);
  EXPECT_EQ(from_thread.sum().item<float>(), 8);
}

TEST(HeapScope, FallsBackWhereTheHeapHasNoRoom) {
  shm::SegmentOptions options;
  options.ranks = 1;
  options.heap_bytes_per_rank = size_t{4} << 20;
  Heap heap(shm::Segment::create(options).or_throw(), 0);
  const HeapScope scope(heap);
  const at::Tensor first = at::ones({1 << 19});  // 2 MiB
  const at::Tensor second = at::ones({1 << 20});
  EXPECT_TRUE(heap.contains(first));
  EXPECT_FALSE(heap.contains(second));
  EXPECT_EQ(second.sum().item<float>(), 1 << 20);
  EXPECT_EQ(scope.counts().private_tensors, 1);
  EXPECT_EQ(scope.counts().private_bytes, int64_t{4} << 20);
  EXPECT_TRUE(heap.contains(at::ones({8}))) << "what fits still lies there";
}

/// What libtorch tells its memory hooks.
struct MemoryHook : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    current += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t current = 0;
};

TEST(HeapScope, BytesAreReportedAsThoseOfAnyTensor) {
  const auto hook = std::make_shared<MemoryHook>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, hook);
  std::optional<at::Tensor> tensor = at::empty({1000});
  const int64_t in_private_memory = hook->current;
  EXPECT_GE(in_private_memory, 4000);
  tensor.reset();
  const HeapScope scope(Heap::private_arena());
  tensor = at::empty({1000});
  EXPECT_EQ(hook->current, in_private_memory);
  tensor.reset();
  EXPECT_EQ(hook->current, 0);
}

/// An allocator that someone sets on top, and that serves by the one below.
struct OnTop : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override { return below->allocate(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  c10::Allocator* below = nullptr;
};

TEST(HeapScope, LeavesAnAllocatorThatCameLaterInItsPlace) {
  static OnTop on_top;
  c10::Allocator* const before = cpu_allocator();
  Heap heap = Heap::private_arena();
  {
    const HeapScope scope(heap);
    on_top.below = cpu_allocator();
    c10::SetAllocator(c10::kCPU, &on_top);
    EXPECT_TRUE(heap.contains(at::ones({8})));
  }
  EXPECT_EQ(cpu_allocator(), &on_top);
  EXPECT_FALSE(heap.contains(at::ones({8})));
  {
    const HeapScope again(heap);
    EXPECT_TRUE(heap.contains(at::ones({8})));
    c10::SetAllocator(c10::kCPU, on_top.below);
  }
  EXPECT_EQ(cpu_allocator(), before);
}

TEST(HeapScope, PeersReachItsTensorsWithoutACopy) {
  internal::run_ranks(2, [](const Group& group) {
    constexpr int64_t kCount = 1 << 18;
    EXPECT_THAT(internal::refusal([&] { (void)all_gather_view(at::zeros({kCount}), group); }),
                testing::HasSubstr("is not in its heap"));
    Heap heap = group.heap();
    const HeapScope scope(heap);
    at::Tensor mine = at::full({kCount}, group.rank() + 1);
    // A lease maps shards where they lie, and is refused where one lies in private memory.
    Lease lease = all_gather_view(mine, group);
    EXPECT_EQ(lease[1 - group.rank()][kCount - 1].item<int64_t>(), 2 - group.rank());
    lease.release();
    lease.wait_released();
    at::Tensor sum = mine * 1;
    all_reduce(sum, group).wait();
    EXPECT_EQ(sum[0].item<int64_t>(), 3);
    at::Tensor theirs = at::empty({kCount}, at::kLong);
    const int peer = 1 - group.rank();
    Work sent = send(mine, peer, group);
    recv(theirs, peer, group).wait();
    sent.wait();
    EXPECT_EQ(theirs[0].item<int64_t>(), peer + 1);
  });
}

}  // namespace
}  // namespace hanji::comm
