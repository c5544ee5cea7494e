#include "hanji/checkpoint/hash.h"

#include <gmock/gmock.h>

#include <vector>

namespace hanji::checkpoint {
namespace {

const std::vector<float> kValues = {1, 2, 3, 4};

NamedTensor tensor(std::string name, std::vector<int64_t> shape = {4}) {
  return {std::move(name), DType::kFloat32, std::move(shape), std::as_bytes(std::span(kValues))};
}

// sha256 of the stream written out by hand: u64 1, u64 1 "a", u64 7 "float32", u64 1, i64 4, the
// sixteen bytes of 1 2 3 4, then u64 0 for the empty optimizer.
TEST(StateHash, IsTheSumOfItsDocumentedStream) {
  EXPECT_EQ(state_hash(std::vector{tensor("a")}, {}),
            "9f6fd271514d69494df2cc933a9519a37d08e2b98c2137f16e79e6d23ba422a9");
}

TEST(StateHash, DoesNotDependOnTheOrderGiven) {
  EXPECT_EQ(state_hash(std::vector{tensor("a"), tensor("b")}, {}),
            state_hash(std::vector{tensor("b"), tensor("a")}, {}));
}

TEST(StateHash, DependsOnEverythingElse) {
  const std::string hash = state_hash(std::vector{tensor("a")}, {});
  EXPECT_NE(state_hash(std::vector{tensor("b")}, {}), hash);
  EXPECT_NE(state_hash(std::vector{tensor("a", {2, 2})}, {}), hash);
  EXPECT_NE(state_hash({}, std::vector{tensor("a")}), hash);
  NamedTensor other = tensor("a");
  other.dtype = DType::kInt32;
  EXPECT_NE(state_hash(std::vector{other}, {}), hash);
  const std::vector<float> changed = {1, 2, 3, 5};
  other = tensor("a");
  other.bytes = std::as_bytes(std::span(changed));
  EXPECT_NE(state_hash(std::vector{other}, {}), hash);
}

}  // namespace
}  // namespace hanji::checkpoint
