#include "hanji/checkpoint/diff.h"

#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

template <class T>
NamedTensor tensor(std::string name, DType dtype, const std::vector<T>& values) {
  return {std::move(name),
          dtype,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

std::vector<Difference> compare(const std::vector<NamedTensor>& a,
                                const std::vector<NamedTensor>& b) {
  const test::TemporaryFolder temporary;
  EXPECT_TRUE(write_safetensors(temporary.path() / "a", a).ok());
  EXPECT_TRUE(write_safetensors(temporary.path() / "b", b).ok());
  return diff(SafetensorsFile::open(temporary.path() / "a").or_throw(),
              SafetensorsFile::open(temporary.path() / "b").or_throw());
}

const std::vector<float> kValues = {1, 2, 3, 4};

TEST(Diff, IsEmptyForEqualFiles) {
  const auto a = tensor("a", DType::kFloat32, kValues);
  EXPECT_TRUE(compare({a}, {a}).empty());
}

/// A file with the tensor `x` of two bytes, whatever their type.
SafetensorsFile file_of(const test::TemporaryFolder& temporary, const std::string& type,
                        const std::string& shape, const std::string& bytes) {
  const std::string header =
      R"({"x":{"dtype":")" + type + R"(","shape":[)" + shape + R"(],"data_offsets":[0,2]}})";
  const uint64_t length = header.size();
  const std::string whole =
      std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + bytes;
  base::throw_if_error(base::write_file_atomic(temporary.path() / "file", whole));
  return SafetensorsFile::open(temporary.path() / "file").or_throw();
}

TEST(Diff, ComparesTheBytesOfTypesThatAreNotRead) {
  const test::TemporaryFolder temporary;
  const auto first = file_of(temporary, "U16", "1", "ab");
  EXPECT_TRUE(diff(first, file_of(temporary, "U16", "1", "ab")).empty());
  const auto kind = [&](const std::string& type, const std::string& shape) {
    const auto found = diff(first, file_of(temporary, type, shape, "ac"));
    return found.size() == 1 ? found[0].kind : DifferenceKind::kValues;
  };
  EXPECT_EQ(kind("U16", "1"), DifferenceKind::kBytes);
  EXPECT_EQ(kind("I16", "1"), DifferenceKind::kForm);
  EXPECT_EQ(kind("U8", "2"), DifferenceKind::kForm);
  base::throw_if_error(write_safetensors(temporary.path() / "none", {}));
  const auto none = SafetensorsFile::open(temporary.path() / "none");
  EXPECT_EQ(diff(first, *none).at(0).kind, DifferenceKind::kOnlyInFirst);
  EXPECT_EQ(diff(*none, first).at(0).kind, DifferenceKind::kOnlyInSecond);
}

TEST(Diff, CountsAndMeasuresValues) {
  const std::vector<float> other = {1, 2.5, 3, 2};
  const auto found =
      compare({tensor("a", DType::kFloat32, kValues)}, {tensor("a", DType::kFloat32, other)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, DifferenceKind::kValues);
  EXPECT_EQ(found[0].num_elements, 2);
  EXPECT_EQ(found[0].first_element, 1);
  EXPECT_EQ(found[0].largest, 2);
}

TEST(Diff, CountsTheNumbersBetweenTheSides) {
  const float next = std::nextafter(2.0f, 3.0f);
  const std::vector<float> ones = {1, 2, 3, 1e-45f};
  const std::vector<float> others = {1, next, 3, -1e-45f};
  const auto floats =
      compare({tensor("a", DType::kFloat32, ones)}, {tensor("a", DType::kFloat32, others)});
  EXPECT_EQ(floats.at(0).largest_ulps, 2) << "from the least number over zero to its negative";
  const std::vector<double> one = {1};
  const std::vector<double> two = {2};
  const auto doubles =
      compare({tensor("a", DType::kFloat64, one)}, {tensor("a", DType::kFloat64, two)});
  EXPECT_EQ(doubles.at(0).largest_ulps, std::ldexp(1.0, 52));
  const std::vector<uint16_t> brain = {0x3F80};
  const std::vector<uint16_t> other = {0x3F83};
  const auto brains =
      compare({tensor("a", DType::kBFloat16, brain)}, {tensor("a", DType::kBFloat16, other)});
  EXPECT_EQ(brains.at(0).largest_ulps, 3);
  const std::vector<float> nan = {1, std::nanf(""), 3, 4};
  EXPECT_TRUE(
      std::isnan(compare({tensor("a", DType::kFloat32, ones)}, {tensor("a", DType::kFloat32, nan)})
                     .at(0)
                     .largest_ulps));
}

TEST(Diff, SeesBitsThatNoDistanceShows) {
  const std::vector<float> zero = {0.0f};
  const std::vector<float> minus_zero = {-0.0f};
  const auto found =
      compare({tensor("a", DType::kFloat32, zero)}, {tensor("a", DType::kFloat32, minus_zero)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].num_elements, 1);
  EXPECT_EQ(found[0].largest, 0);
  EXPECT_EQ(found[0].largest_ulps, 0);
}

TEST(Diff, ANanMakesTheDistanceNan) {
  const std::vector<float> nan = {std::nanf(""), 2, 3, 9};
  const auto found =
      compare({tensor("a", DType::kFloat32, kValues)}, {tensor("a", DType::kFloat32, nan)});
  EXPECT_TRUE(std::isnan(found.at(0).largest));
  EXPECT_EQ(found[0].num_elements, 2);
}

TEST(Diff, ReadsEveryElementType) {
  // 1 and 2 in each type's own bits.
  const std::vector<uint16_t> half_one = {0x3C00};
  const std::vector<uint16_t> half_two = {0x4000};
  const std::vector<uint16_t> brain_one = {0x3F80};
  const std::vector<uint16_t> brain_two = {0x4000};
  const std::vector<double> one = {1};
  const std::vector<double> two = {2};
  const std::vector<int64_t> long_one = {1};
  const std::vector<int64_t> long_two = {2};
  const std::vector<uint8_t> byte_one = {1};
  const std::vector<uint8_t> byte_two = {2};
  const auto found =
      compare({tensor("h", DType::kFloat16, half_one), tensor("b", DType::kBFloat16, brain_one),
               tensor("d", DType::kFloat64, one), tensor("l", DType::kInt64, long_one),
               tensor("u", DType::kUInt8, byte_one)},
              {tensor("h", DType::kFloat16, half_two), tensor("b", DType::kBFloat16, brain_two),
               tensor("d", DType::kFloat64, two), tensor("l", DType::kInt64, long_two),
               tensor("u", DType::kUInt8, byte_two)});
  ASSERT_EQ(found.size(), 5u);
  for (const Difference& difference : found) EXPECT_EQ(difference.largest, 1) << difference.tensor;
}

TEST(Diff, ReadsSubnormalHalves) {
  const std::vector<uint16_t> least = {0x0001};
  const std::vector<uint16_t> zero = {0x0000};
  const auto found =
      compare({tensor("h", DType::kFloat16, least)}, {tensor("h", DType::kFloat16, zero)});
  EXPECT_EQ(found.at(0).largest, std::ldexp(1.0, -24));
}

TEST(Diff, NamesWhatOnlyOneSideHasAndWhatHasAnotherForm) {
  const std::vector<int32_t> ints = {1, 2, 3, 4};
  const auto found =
      compare({tensor("a", DType::kFloat32, kValues), tensor("c", DType::kFloat32, kValues)},
              {tensor("b", DType::kFloat32, kValues), tensor("c", DType::kInt32, ints)});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, DifferenceKind::kOnlyInFirst);
  EXPECT_EQ(found[1].kind, DifferenceKind::kOnlyInSecond);
  EXPECT_EQ(found[2].kind, DifferenceKind::kForm);
  EXPECT_EQ(name_of(found[2].kind), "type or shape");
}

}  // namespace
}  // namespace hanji::checkpoint
