#include "hanji/data/text.h"

#include <gmock/gmock.h>

#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::write_file;
using testing::HasSubstr;

TEST(ReadText, ReadsOneFile) {
  const test::TemporaryFolder folder;
  write_file(folder.path(), "a.txt", "hello");
  const auto text = read_text(folder.path() / "a.txt");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "hello");
}

TEST(ReadText, JoinsAFolderInByteOrderOfPaths) {
  const test::TemporaryFolder folder;
  write_file(folder.path(), "b.txt", "3");
  write_file(folder.path(), "Z.txt", "1");
  write_file(folder.path(), "a/x.txt", "2");
  write_file(folder.path(), ".hidden", "no");
  write_file(folder.path(), ".git/config", "no");
  const auto text = read_text(folder.path());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes, "123");
  EXPECT_THAT(describe_position(*text, 2), HasSubstr("b.txt, byte 0"));
}

TEST(ReadText, RefusesWhatIsNoText) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_text(folder.path() / "absent").status().code(), Code::kNotFound);
  EXPECT_EQ(read_text(folder.path()).status().code(), Code::kNotFound);
  write_file(folder.path(), "empty", "");
  EXPECT_THAT(read_text(folder.path()).status().message(), HasSubstr("empty"));
  write_file(folder.path(), "binary", std::string("ab\0c", 4));
  const Status status = read_text(folder.path()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("binary: byte 2 is NUL"));
}

}  // namespace
}  // namespace hanji::data
