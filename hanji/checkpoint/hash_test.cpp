#include "hanji/checkpoint/hash.h"

#include <gmock/gmock.h>

#include <vector>

namespace hanji::checkpoint {
namespace {

const std::vector<float> kHashed = {1, 2, 3, 4};

NamedTensor tensor_of(std::string name, std::vector<int64_t> shape = {4}) {
  return {std::move(name), DType::kFloat32, std::move(shape), std::as_bytes(std::span(kHashed))};
}

// sha256 of the stream written out by hand: u64 1, u64 1 "a", u64 7 "float32", u64 1, i64 4, the
// sixteen bytes of 1 2 3 4, then u64 0 for the empty optimizer.
TEST(StateHash, IsTheSumOfItsDocumentedStream) {
  EXPECT_EQ(state_hash(std::vector{tensor_of("a")}, {}),
            "9f6fd271514d69494df2cc933a9519a37d08e2b98c2137f16e79e6d23ba422a9");
}

TEST(StateHash, DoesNotDependOnTheOrderGiven) {
  EXPECT_EQ(state_hash(std::vector{tensor_of("a"), tensor_of("b")}, {}),
            state_hash(std::vector{tensor_of("b"), tensor_of("a")}, {}));
}

TEST(StateHash, DependsOnEverythingElse) {
  const std::string hash = state_hash(std::vector{tensor_of("a")}, {});
  EXPECT_NE(state_hash(std::vector{tensor_of("b")}, {}), hash);
  EXPECT_NE(state_hash(std::vector{tensor_of("a", {2, 2})}, {}), hash);
  EXPECT_NE(state_hash({}, std::vector{tensor_of("a")}), hash);
  NamedTensor other = tensor_of("a");
  other.dtype = DType::kInt32;
  EXPECT_NE(state_hash(std::vector{other}, {}), hash);
  const std::vector<float> changed = {1, 2, 3, 5};
  other = tensor_of("a");
  other.bytes = std::as_bytes(std::span(changed));
  EXPECT_NE(state_hash(std::vector{other}, {}), hash);
}

}  // namespace
}  // namespace hanji::checkpoint
