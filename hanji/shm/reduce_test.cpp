#include "hanji/shm/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "hanji/base/random.h"
#include "hanji/base/simd.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/shm/internal/element.h"

namespace hanji::shm {
namespace {

using schedule::ReduceOp;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kFloat64,      DType::kFloat32,   DType::kBFloat16,
                             DType::kFloat16,      DType::kInt32,     DType::kInt64,
                             DType::kUInt8,        DType::kInt8,      DType::kBool,
                             DType::kFloat8E4M3FN, DType::kFloat8E5M2};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kAvg,    ReduceOp::kMin,
                             ReduceOp::kMax,   ReduceOp::kProd,   ReduceOp::kBitAnd,
                             ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kPremulSum};

using Buffer = std::vector<std::byte>;

Buffer random_bits(size_t bytes, uint64_t key) {
  Buffer buffer(bytes + 16);
  for (size_t i = 0; i + 16 <= buffer.size(); i += 16) {
    const auto words = base::Philox::draw(key, 0, i);
    std::memcpy(buffer.data() + i, words.data(), 16);
  }
  buffer.resize(bytes);
  return buffer;
}

bool is_nan(DType dtype, const std::byte* element) {
  bool nan = false;
  internal::visit(dtype, [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof value);
    const auto wide = internal::widen(value);
    nan = wide != wide;
  });
  return nan;
}

// Equal bits, except that any NaN equals any: which payload survives is the processor's choice.
void expect_same(DType dtype, const Buffer& a, const Buffer& b) {
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < a.size(); i += size) {
    if (std::memcmp(&a[i], &b[i], size) == 0) continue;
    ASSERT_TRUE(is_nan(dtype, &a[i]) && is_nan(dtype, &b[i])) << "element " << i / size;
  }
}

struct Kind {
  DType dtype;
  ReduceOp op;
  Rounding rounding;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      if (!check_op(op, dtype).ok()) continue;
      all.push_back({dtype, op, Rounding::kOnce});
      all.push_back({dtype, op, Rounding::kEveryNode});
    }
  }
  return all;
}

struct Case {
  int sources;
  int64_t count;
  size_t misaligned;
};

class BitEqual : public testing::TestWithParam<std::tuple<base::Simd, Case>> {
 protected:
  void SetUp() override {
    const base::Simd level = std::get<0>(GetParam());
    if (level > *base::usable_simd()) GTEST_SKIP() << "not on this processor";
    ASSERT_TRUE(base::use_simd(level).ok());
  }
  void TearDown() override { ASSERT_TRUE(base::use_simd(*base::usable_simd()).ok()); }
};

TEST_P(BitEqual, ToScalarForEveryTypeAndOpAtEveryLevelOfInstructions) {
  const Case c = std::get<1>(GetParam());
  const std::vector<int> tree = schedule::pairwise_tree(c.sources);
  for (const auto& [dtype, op, rounding] : kinds()) {
    SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << name_of(op) << ", rounded "
                                    << (rounding == Rounding::kOnce ? "once" : "at every node"));
    const size_t bytes = static_cast<size_t>(c.count) * size_of(dtype);
    std::vector<Buffer> inputs;
    std::vector<const void*> sources;
    std::vector<double> factors;
    for (int i = 0; i < c.sources; ++i) {
      inputs.push_back(random_bits(bytes + c.misaligned, static_cast<uint64_t>(i) + 1));
      if (op == ReduceOp::kPremulSum) factors.push_back(0.3 * (i + 1));
    }
    for (const Buffer& input : inputs) sources.push_back(input.data() + c.misaligned);
    const ReduceOptions options{factors, rounding};
    Buffer scalar(bytes);
    std::vector<void*> to = {scalar.data()};
    reduce_scalar(dtype, op, sources, tree, to, c.count, options);
    Buffer first(bytes), second(bytes), third(bytes);
    to = {first.data(), second.data(), third.data()};
    reduce(dtype, op, sources, tree, to, c.count, options);
    for (const Buffer& vector : {first, second, third}) expect_same(dtype, scalar, vector);
    // Into two buffers, one of which is the last source.
    to = {first.data(), inputs.back().data() + c.misaligned};
    reduce(dtype, op, sources, tree, to, c.count, options);
    expect_same(dtype, scalar, first);
    expect_same(
        dtype, scalar,
        Buffer(inputs.back().begin() + static_cast<int64_t>(c.misaligned), inputs.back().end()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BitEqual,
    testing::Combine(testing::ValuesIn(base::kSimdLevels),
                     testing::Values(Case{1, 100, 0}, Case{2, 1, 0}, Case{2, 1000, 0},
                                     Case{2, 1023, 3}, Case{3, 4099, 0}, Case{4, 2048, 8},
                                     Case{5, 777, 1}, Case{9, 1500, 0}, Case{16, 1031, 0},
                                     Case{40, 600, 0}, Case{2, 0, 0})));

template <class T>
T reduce_two(DType dtype, ReduceOp op, T a, T b) {
  const void* sources[] = {&a, &b};
  T result{};
  void* to[] = {&result};
  const int tree[] = {0, 1, -1};
  reduce(dtype, op, sources, tree, to, 1);
  return result;
}

TEST(Reduce, IntegersWrapAroundAndTheirAverageIsCutTowardZero) {
  EXPECT_EQ(reduce_two<uint8_t>(DType::kUInt8, ReduceOp::kSum, 200, 100), 44);
  EXPECT_EQ(reduce_two<int32_t>(DType::kInt32, ReduceOp::kSum, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(reduce_two<int64_t>(DType::kInt64, ReduceOp::kProd, int64_t{1} << 62, 4), 0);
  EXPECT_EQ(reduce_two<int32_t>(DType::kInt32, ReduceOp::kAvg, -2, -5), -3);
}

TEST(Reduce, BitsOfIntegersAreCombinedAndThoseOfFloatsAreNot) {
  EXPECT_EQ(reduce_two<uint8_t>(DType::kUInt8, ReduceOp::kBitAnd, 0b1100, 0b1010), 0b1000);
  EXPECT_EQ(reduce_two<int32_t>(DType::kInt32, ReduceOp::kBitOr, 0b1100, 0b1010), 0b1110);
  EXPECT_EQ(reduce_two<int64_t>(DType::kInt64, ReduceOp::kBitXor, -1, 0b1010), ~int64_t{0b1010});
  EXPECT_TRUE(check_op(ReduceOp::kBitOr, DType::kUInt8).ok());
  EXPECT_EQ(check_op(ReduceOp::kBitOr, DType::kBFloat16).code(), Code::kUnsupported);
  EXPECT_TRUE(check_op(ReduceOp::kProd, DType::kBFloat16).ok());
}

TEST(Reduce, MinAndMaxReturnNaNIfThereIsOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduce_two(DType::kFloat32, op, nan, 1.0f)));
    EXPECT_TRUE(std::isnan(reduce_two(DType::kFloat32, op, 1.0f, nan)));
  }
}

TEST(Reduce, HalfPrecisionIsSummedInFloat32AndRoundedOnceOrAtEveryNode) {
  // 256 + 1 is a tie in bfloat16 (8 bits of fraction) that goes to the even 256: with the node 1 + 1 that is
  // 258. One rounding of 259 gives 260.
  const uint16_t big = 0x4380, one = 0x3f80;
  const void* sources[] = {&big, &one, &one, &one};
  uint16_t result = 0;
  void* to[] = {&result};
  reduce(DType::kBFloat16, ReduceOp::kSum, sources, schedule::pairwise_tree(4), to, 1);
  EXPECT_EQ(result, 0x4382);
  reduce(DType::kBFloat16, ReduceOp::kSum, sources, schedule::pairwise_tree(4), to, 1,
         {.rounding = rounding_of(schedule::Routine::kTreeReduce)});
  EXPECT_EQ(result, 0x4381);
}

TEST(Reduce, PremultipliedSumScalesEachSourceByItsFactor) {
  const float a = 3, b = 5;
  const void* sources[] = {&a, &b};
  const double factors[] = {0.5, -2};
  float result = 0;
  void* to[] = {&result};
  const int both[] = {0, 1, -1}, one[] = {0};
  reduce(DType::kFloat32, ReduceOp::kPremulSum, sources, both, to, 1, {factors});
  EXPECT_EQ(result, 1.5f - 10);
  reduce(DType::kFloat32, ReduceOp::kPremulSum, {sources, 1}, one, to, 1, {{factors, 1}});
  EXPECT_EQ(result, 1.5f);
  EXPECT_EQ(check_op(ReduceOp::kPremulSum, DType::kInt32).code(), Code::kUnsupported);
  EXPECT_TRUE(check_op(ReduceOp::kPremulSum, DType::kFloat8E5M2).ok());
}

TEST(Reduce, BoolIsOneBit) {
  EXPECT_EQ(reduce_two<uint8_t>(DType::kBool, ReduceOp::kSum, 1, 1), 1);
  EXPECT_EQ(reduce_two<uint8_t>(DType::kBool, ReduceOp::kMax, 0, 1), 1);
  EXPECT_EQ(reduce_two<uint8_t>(DType::kBool, ReduceOp::kProd, 0, 1), 0);
  EXPECT_EQ(reduce_two<uint8_t>(DType::kBool, ReduceOp::kMin, 1, 1), 1);
  EXPECT_EQ(reduce_two<uint8_t>(DType::kBool, ReduceOp::kBitXor, 1, 1), 0);
  EXPECT_EQ(check_op(ReduceOp::kAvg, DType::kBool).code(), Code::kUnsupported);
}

TEST(Reduce, Int8WrapsAroundWithItsSign) {
  EXPECT_EQ(reduce_two<int8_t>(DType::kInt8, ReduceOp::kSum, 100, 100), -56);
  EXPECT_EQ(reduce_two<int8_t>(DType::kInt8, ReduceOp::kMin, -1, 1), -1);
  EXPECT_EQ(reduce_two<int8_t>(DType::kInt8, ReduceOp::kAvg, -2, -5), -3);
}

// By the formats' definition, in double: (-1)^s 2^(e - bias) 1.f, or 2^(1 - bias) 0.f where e is 0.
double value_by_definition(int bits, int fraction_bits, int bias) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7f) >> fraction_bits;
  const double one = 1 << fraction_bits;
  const double magnitude = exponent == 0 ? std::ldexp(fraction / one, 1 - bias)
                                         : std::ldexp(1 + fraction / one, exponent - bias);
  return bits >= 0x80 ? -magnitude : magnitude;
}

TEST(Float8, EveryValueIsWhatItsFormatDefines) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    const double e4m3fn = internal::widen(internal::Float8E4M3FN{byte});
    const double e5m2 = internal::widen(internal::Float8E5M2{byte});
    const int magnitude = bits & 0x7f;
    ASSERT_EQ(std::isnan(e4m3fn), magnitude == 0x7f) << bits;
    if (magnitude != 0x7f) {
      ASSERT_EQ(e4m3fn, value_by_definition(bits, 3, 7)) << bits;
    }
    ASSERT_EQ(std::isnan(e5m2), magnitude > 0x7c) << bits;
    ASSERT_EQ(std::isinf(e5m2), magnitude == 0x7c) << bits;
    if (magnitude < 0x7c) {
      ASSERT_EQ(e5m2, value_by_definition(bits, 2, 15)) << bits;
    }
  }
}

template <class T>
uint8_t narrow8(double x) {
  return internal::narrow<T>(static_cast<float>(x)).bits;
}

// Every value comes back, what lies between two goes to the nearer, and halfway to the even one.
template <class T>
void expect_rounding(int largest) {
  for (int bits = 0; bits <= largest; ++bits) {
    const double here = internal::widen(T{static_cast<uint8_t>(bits)});
    ASSERT_EQ(narrow8<T>(here), bits);
    ASSERT_EQ(narrow8<T>(-here), bits | 0x80);
    if (bits == largest) break;
    const double next = internal::widen(T{static_cast<uint8_t>(bits + 1)});
    const auto half = static_cast<float>((here + next) / 2);
    ASSERT_EQ(narrow8<T>(half), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(narrow8<T>(std::nextafter(half, 0.0f)), bits) << bits;
    ASSERT_EQ(narrow8<T>(std::nextafter(half, 1e9f)), bits + 1) << bits;
  }
}

TEST(Float8, RoundsToNearestEvenAndWhatIsTooLargeSaturatesOrIsInfinite) {
  expect_rounding<internal::Float8E4M3FN>(0x7e);
  expect_rounding<internal::Float8E5M2>(0x7b);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(narrow8<internal::Float8E4M3FN>(464), 0x7e);  // tie, down to even
  EXPECT_EQ(narrow8<internal::Float8E4M3FN>(465), 0x7e);
  EXPECT_EQ(narrow8<internal::Float8E4M3FN>(-infinity), 0xfe);
  EXPECT_EQ(narrow8<internal::Float8E4M3FN>(std::nan("")) & 0x7f, 0x7f);
  EXPECT_EQ(narrow8<internal::Float8E5M2>(61439), 0x7b);
  EXPECT_EQ(narrow8<internal::Float8E5M2>(61440), 0x7c);  // tie, up to infinity
  EXPECT_EQ(narrow8<internal::Float8E5M2>(infinity), 0x7c);
  EXPECT_EQ(narrow8<internal::Float8E5M2>(std::nan("")) & 0x7f, 0x7f);
}

TEST(Float16, EveryValueSurvivesTheWayThroughFloat32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const internal::Float16 half{static_cast<uint16_t>(bits)};
    const float wide = internal::widen(half);
    const bool nan = wide != wide;
    const uint32_t expected = nan ? bits | 0x200 : bits;
    ASSERT_EQ(internal::narrow<internal::Float16>(wide).bits, expected);
  }
}

TEST(Float16, RoundsToNearestEven) {
  const auto narrow = [](float x) { return internal::narrow<internal::Float16>(x).bits; };
  EXPECT_EQ(narrow(1.0f + 0x1p-11f), 0x3c00);            // tie, down to even
  EXPECT_EQ(narrow(1.0f + 0x3p-11f), 0x3c02);            // tie, up to even
  EXPECT_EQ(narrow(65519.0f), 0x7bff);                   // largest finite
  EXPECT_EQ(narrow(65520.0f), 0x7c00);                   // to infinity
  EXPECT_EQ(narrow(0x1p-25f), 0x0000);                   // tie with zero
  EXPECT_EQ(narrow(std::nextafter(0x1p-25f, 1.0f)), 1);  // smallest subnormal
  EXPECT_EQ(narrow(-0x1p-24f), 0x8001);
}

TEST(CheckTree, RefusesWhatIsNoReductionOfAllSources) {
  EXPECT_TRUE(check_tree(schedule::pairwise_tree(16), 16).ok());
  const std::vector<int> too_few = {0, 1, -1}, repeated = {0, 0, -1}, empty_stack = {0, -1},
                         unknown = {0, 7, -1}, two_left = {0, 1};
  EXPECT_THAT(check_tree(too_few, 3).message(), HasSubstr("all 3"));
  EXPECT_FALSE(check_tree(repeated, 2).ok());
  EXPECT_FALSE(check_tree(empty_stack, 1).ok());
  EXPECT_FALSE(check_tree(unknown, 2).ok());
  EXPECT_FALSE(check_tree(two_left, 2).ok());
}

TEST(CheckTree, BoundsWhatIsHeldAtOnce) {
  std::vector<int> right_leaning;
  for (int i = 0; i < 65; ++i) right_leaning.push_back(i);
  right_leaning.insert(right_leaning.end(), 64, -1);
  EXPECT_FALSE(check_tree(right_leaning, 65).ok());
}

}  // namespace
}  // namespace hanji::shm
