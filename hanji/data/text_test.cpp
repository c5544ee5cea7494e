#include "hanji/data/text.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/test_folder.h"

namespace hanji::data {
namespace {

using internal::TestFolder;
using testing::HasSubstr;

TEST(ReadText, ReadsOneFile) {
  const TestFolder folder;
  folder.write("a.txt", "hello");
  const auto text = read_text(folder.path() / "a.txt");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "hello");
}

TEST(ReadText, JoinsAFolderInByteOrderOfPaths) {
  const TestFolder folder;
  folder.write("b.txt", "3");
  folder.write("Z.txt", "1");
  folder.write("a/x.txt", "2");
  folder.write(".hidden", "no");
  folder.write(".git/config", "no");
  const auto text = read_text(folder.path());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "123");
  EXPECT_THAT(describe_position(*text, 2), HasSubstr("b.txt, byte 0"));
}

TEST(ReadText, RefusesWhatIsNoText) {
  const TestFolder folder;
  EXPECT_EQ(read_text(folder.path() / "absent").status().code(), Code::kNotFound);
  EXPECT_EQ(read_text(folder.path()).status().code(), Code::kNotFound);
  folder.write("empty", "");
  EXPECT_THAT(read_text(folder.path()).status().message(), HasSubstr("empty"));
  folder.write("binary", std::string("ab\0c", 4));
  const Status status = read_text(folder.path()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("binary: byte 2 is NUL"));
}

}  // namespace
}  // namespace hanji::data
