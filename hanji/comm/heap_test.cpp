#include "hanji/comm/heap.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <optional>

#include "hanji/comm/internal/test_ranks.h"
#include "hanji/shm/heap.h"

namespace hanji::comm {
namespace {

TEST(CommHeap, TensorsAreContiguousAlignedAndCounted) {
  Heap heap(internal::make_segment(2), 1);
  const at::Tensor tensor = heap.empty({3, 5}, at::kBFloat16, "gradients");
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
  EXPECT_GE(heap.raw().usage().at("gradients"), 30u);
}

TEST(CommHeap, ZerosAreZeroWhereMemoryWasUsedBefore) {
  Heap heap(internal::make_segment(1), 0);
  heap.empty({1000}, at::kFloat, "test").fill_(7);
  EXPECT_EQ(heap.zeros({1000}, at::kFloat, "test").abs().sum().item<float>(), 0);
}

TEST(CommHeap, TheLastReferenceFreesTheBlock) {
  Heap heap(internal::make_segment(1), 0);
  std::optional<at::Tensor> whole = heap.empty({1 << 16}, at::kFloat, "test");
  at::Tensor view = whole->narrow(0, 10, 4);
  whole.reset();
  EXPECT_GT(heap.raw().used_bytes(0), 0u);
  view.reset();
  EXPECT_EQ(heap.raw().used_bytes(0), 0u);
}

TEST(CommHeap, ATensorHoldsTheMappingAlive) {
  at::Tensor tensor = Heap(internal::make_segment(1), 0).zeros({64}, at::kInt, "test");
  tensor.add_(3);
  EXPECT_EQ(tensor.sum().item<int64_t>(), 192);
}

TEST(CommHeap, ContainsWhatAnyRankAllocatedAndNothingElse) {
  const auto segment = internal::make_segment(2);
  Heap mine(segment, 0);
  Heap theirs(segment, 1);
  EXPECT_TRUE(mine.contains(theirs.empty({4}, at::kFloat, "test")));
  EXPECT_FALSE(mine.contains(mine.empty({0}, at::kFloat, "test"))) << "it has no address";
  EXPECT_FALSE(mine.contains(at::zeros({4})));
  EXPECT_FALSE(mine.contains(at::Tensor()));
  EXPECT_FALSE(mine.contains(at::empty({4}, at::TensorOptions(at::kMeta))));
}

TEST(CommHeap, RefusesSizesThatCannotBe) {
  Heap heap = Heap::private_arena();
  const auto code_of = [&heap](at::IntArrayRef sizes) {
    try {
      heap.empty(sizes, at::kFloat, "test");
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kOk;
  };
  EXPECT_EQ(code_of({-1}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({int64_t{1} << 62, 16}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({int64_t{1} << 60}), Code::kOutOfMemory);
}

}  // namespace
}  // namespace hanji::comm
