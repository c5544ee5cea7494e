#include "hanji/base/secret.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string_view>

namespace hanji::base {
namespace {

std::span<const std::byte> secret_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

TEST(Hmac, GivesTheDigestOfRfc4231Case2) {
  const std::string expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  EXPECT_EQ(hex(hmac_sha256(secret_bytes("Jefe"), {secret_bytes("what do ya want for nothing?")})),
            expected);
  EXPECT_EQ(hex(hmac_sha256(secret_bytes("Jefe"), {secret_bytes("what do ya "), secret_bytes(""),
                                                   secret_bytes("want for nothing?")})),
            expected);
}

TEST(EqualSecrets, DiffersInEveryByteAndInLength) {
  const Digest digest = hmac_sha256(secret_bytes("k"), {secret_bytes("m")});
  EXPECT_TRUE(equal_secrets(digest, digest));
  for (size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(equal_secrets(digest, other)) << i;
  }
  EXPECT_FALSE(equal_secrets(digest, std::span(digest).first(31)));
}

TEST(FillRandom, NeverGivesTheSameTwice) {
  Digest first{};
  Digest second{};
  ASSERT_TRUE(fill_random(first).ok());
  ASSERT_TRUE(fill_random(second).ok());
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace hanji::base
