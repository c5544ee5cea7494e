#include "hanji/data/internal/npy_header.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/test_npy.h"

namespace hanji::data::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<NpyHeader> parse_text(const std::string& file) {
  return parse_npy(std::as_bytes(std::span(file)));
}

Status status_of_npy(const std::string& file) { return parse_text(file).status(); }

TEST(NpyHeader, IsReadAsNumpyWritesIt) {
  const std::string file = npy_file("<f4", "(2, 3)", std::string(24, 'x'));
  EXPECT_EQ(file.size(), 128 + 24);
  const auto header = parse_text(file).or_throw();
  EXPECT_EQ(header.dtype, "<f4");
  EXPECT_THAT(header.shape, ElementsAre(2, 3));
  EXPECT_EQ(header.begin, 128);
  EXPECT_EQ(header.item_bytes, 4);
}

TEST(NpyHeader, EveryVersionAndShapeIsRead) {
  EXPECT_TRUE(parse_text(npy_file("|u1", "()", "x")).or_throw().shape.empty());
  EXPECT_THAT(parse_text(npy_file(">i2", "(1,)", "xy")).or_throw().shape, ElementsAre(1));
  std::string second = npy_file("|b1", "(3,)", "xyz");
  second[6] = 2;
  second.insert(10, 2, '\0');
  EXPECT_EQ(parse_text(second).or_throw().begin, 130);
}

TEST(NpyHeader, OtherOrdersAndTypesAreRejectedByName) {
  EXPECT_THAT(status_of_npy(npy_file("<f4", "(2, 3)", std::string(24, 'x'), "True")).message(),
              HasSubstr("Fortran order"));
  EXPECT_EQ(status_of_npy(npy_file("|O", "(1,)", "12345678")).code(), Code::kUnsupported);
  EXPECT_EQ(status_of_npy(npy_file("<U4", "(1,)", std::string(16, 'x'))).code(),
            Code::kUnsupported);
  EXPECT_EQ(status_of_npy(npy_file("<M8[s]", "(1,)", "12345678")).code(), Code::kUnsupported);
}

TEST(NpyHeader, SizesThatAreNotTheShapesAreRejected) {
  EXPECT_THAT(status_of_npy(npy_file("<f4", "(2, 3)", std::string(23, 'x'))).message(),
              HasSubstr("23 bytes behind the header, where the shape has 24"));
  EXPECT_EQ(status_of_npy(npy_file("<f4", "(4294967296, 4294967296)", "x")).code(), Code::kCorrupt);
  EXPECT_EQ(status_of_npy(npy_file("<f4", "(99999999999999999999,)", "x")).code(), Code::kCorrupt);
}

TEST(NpyHeader, OtherTextsAreRejected) {
  const std::string file = npy_file("<f4", "(1,)", "1234");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(status_of_npy(file.substr(0, size)).ok()) << size;
  }
  for (const char* shape : {"(1", "(-1,)", "[1]", "(1,), 'shape': (1,)", "(1 2)", "1"}) {
    EXPECT_EQ(status_of_npy(npy_file("<f4", shape, "1234")).code(), Code::kCorrupt) << shape;
  }
  EXPECT_EQ(status_of_npy("PK\x03\x04 an .npz file").code(), Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::data::internal
