#include "hanji/base/checksum.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace hanji::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, EqualsThePublishedVectors) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AA);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43);
}

TEST(Crc32c, ContinuesFromItsSeedAtAnyCut) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = crc32c(bytes_of(text.substr(0, cut)));
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), first), crc32c(bytes_of(text))) << cut;
  }
}

TEST(Xxh3, EqualsThePublishedVectorAndSeesEveryBit) {
  EXPECT_EQ(xxh3({}), 0x2D06800538D394C2);
  std::vector<std::byte> bytes(300);
  const uint64_t before = xxh3(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 37) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_NE(xxh3(bytes), before) << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

/// Whole bytes go by other instructions than pieces do, where the processor has them.
TEST(Xxh3, IsTheSameByEveryInstructionSet) {
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  for (size_t size = 0; size < bytes.size(); size += size < 600 ? 1 : 97) {
    const auto some = std::span(bytes).subspan(size % 7).first(size - size % 7);
    Xxh3 pieces;
    pieces.update(some.first(some.size() / 3));
    pieces.update(some.subspan(some.size() / 3));
    EXPECT_EQ(pieces.digest(), xxh3(some)) << size;
  }
}

TEST(Xxh3, OfPiecesIsThatOfAllBytes) {
  const std::string text(1000, 'x');
  for (const size_t cut : {0, 1, 255, 256, 257, 999, 1000}) {
    Xxh3 pieces;
    pieces.update(bytes_of(text.substr(0, cut)));
    pieces.update(bytes_of(text.substr(cut)));
    EXPECT_EQ(pieces.digest(), xxh3(bytes_of(text))) << cut;
    EXPECT_EQ(pieces.digest(), xxh3(bytes_of(text))) << "digest() changes nothing";
  }
}

// FIPS 180-4 examples.
TEST(Sha256, EqualsThePublishedVectors) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256().update("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, GoesOnAfterHexAndAfterAMove) {
  Sha256 hash;
  hash.update("a");
  EXPECT_EQ(hash.hex(), hash.hex());
  Sha256 copied = hash;
  copied.update("x");
  Sha256 moved = std::move(hash);
  moved.update("bc");
  EXPECT_EQ(moved.hex(), Sha256().update("abc").hex());
}

}  // namespace
}  // namespace hanji::base
