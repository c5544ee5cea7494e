#include "hanji/launch/control_plane/token.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "hanji/base/socket.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using testing::HasSubstr;

class TokenFile : public testing::Test {
 protected:
  /// A file with this content and mode.
  std::filesystem::path file(const std::string& content, mode_t mode) {
    const auto path = folder_.path() / "token";
    std::ofstream(path) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  test::TemporaryFolder folder_;
};

TEST(Token, ReadsBackAndIsNeverTheSameTwice) {
  const auto token = make_token();
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(*parse_token(" " + to_text(*token) + "\n"), *token);
  EXPECT_NE(*make_token(), *token);
}

TEST(Token, RefusesOtherTextWithoutShowingIt) {
  const std::string good = to_text(*make_token());
  for (const std::string& text :
       {std::string(), good.substr(1), good + "0", "g" + good.substr(1)}) {
    const Status status = parse_token(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), testing::Not(HasSubstr(good.substr(4, 16))));
  }
}

TEST_F(TokenFile, IsReadIfNobodyElseMay) {
  const Token token = *make_token();
  EXPECT_EQ(*read_token_file(file(to_text(token) + "\n", 0600)), token);
  EXPECT_EQ(*read_token_file(file(to_text(token), 0400)), token);
}

TEST_F(TokenFile, IsRefusedIfOthersMayReadItOrItIsALink) {
  const auto path = file(to_text(*make_token()), 0640);
  EXPECT_THAT(read_token_file(path).status().message(), HasSubstr("0640"));
  ::chmod(path.c_str(), 0600);
  std::filesystem::create_symlink(path, folder_.path() / "link");
  EXPECT_FALSE(read_token_file(folder_.path() / "link").ok());
  EXPECT_FALSE(read_token_file(folder_.path()).ok());
}

TEST_F(TokenFile, OfAnotherUserIsRefused) {
  const auto path = file(to_text(*make_token()), 0600);
  if (::chown(path.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(read_token_file(path).status().message(), HasSubstr("65534"));
}

TEST_F(TokenFile, ThatIsMissingIsToldWithTheWayToMakeOne) {
  const Status status = read_token_file(folder_.path() / "none").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("openssl rand -hex 32"));
}

TEST(TokenDescriptor, ThatIsNotOpenIsAMistakeOfTheCaller) {
  const Status status = read_token(7777).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--token-fd 7777 7777< FILE"));
}

TEST(TokenDescriptor, IsReadUpToTheEndOfItsLine) {
  const auto ends = base::socket_pair(base::SocketKind::kStream);
  const Token token = *make_token();
  const std::string text = to_text(token) + "\nINT\n";
  ASSERT_TRUE(base::send_message(ends->first.get(), std::as_bytes(std::span(text))).ok());
  EXPECT_EQ(*read_token(ends->second.get()), token);
  char rest[4] = {};
  EXPECT_EQ(::read(ends->second.get(), rest, 4), 4);
  EXPECT_EQ(std::string(rest, 4), "INT\n");
}

}  // namespace
}  // namespace hanji::launch
