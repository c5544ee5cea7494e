#include "hanji/data/text.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using internal::write_file;
using testing::AllOf;
using testing::ElementsAre;
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
  EXPECT_THAT(text->notes, ElementsAre(HasSubstr("left out 2 names")));
}

TEST(ReadText, LeavesOutAByteOrderMarkAndSaysSo) {
  const test::TemporaryFolder folder;
  write_file(folder.path(), "a.txt", "\xEF\xBB\xBFone");
  write_file(folder.path(), "b.txt", "two");
  write_file(folder.path(), "c.txt", "\xEF\xBB\xBF\xEF\xBB\xBF");
  const auto text = read_text(folder.path()).or_throw();
  EXPECT_EQ(text.bytes, "onetwo\xEF\xBB\xBF") << "one mark of each file, at its begin";
  EXPECT_THAT(text.notes, ElementsAre("left out the byte order mark that opens " +
                                      (folder.path() / "a.txt").native() + ", and 1 file more"));
  EXPECT_THAT(describe_position(text, 1), HasSubstr("a.txt, byte 4"));
  EXPECT_THAT(describe_position(text, 3), HasSubstr("b.txt, byte 0"));
  write_file(folder.path(), "empty", "\xEF\xBB\xBF");
  EXPECT_THAT(read_text(folder.path() / "empty").status().message(), HasSubstr("is empty"));
}

TEST(ReadText, SaysWhatOfAFolderIsNoFile) {
  const test::TemporaryFolder folder;
  write_file(folder.path(), "a/a.txt", "one");
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory_symlink(folder.path() / "a", folder.path() / "b");
  EXPECT_THAT(read_text(folder.path()).or_throw().notes,
              ElementsAre(AllOf(HasSubstr("left out 1 name (neither"), HasSubstr("/pipe")),
                          AllOf(HasSubstr("left out 1 link (to a folder"), HasSubstr("/b"))));
  std::filesystem::remove_all(folder.path() / "a");
  std::filesystem::remove(folder.path() / "b");
  EXPECT_THAT(read_text(folder.path()).status().message(),
              AllOf(HasSubstr("holds no file: left out"), HasSubstr("/pipe")));
}

/// `text` of ASCII characters with `before` and `behind` zero bytes beside each.
std::string widened(std::string_view text, size_t before, size_t behind) {
  std::string wide;
  for (const char c : text) wide += std::string(before, '\0') + c + std::string(behind, '\0');
  return wide;
}

TEST(ReadText, NamesUtf16AndUtf32WithTheCommandThatConverts) {
  using namespace std::literals;
  const test::TemporaryFolder folder;
  const std::string chinese = "\xFF\xFE\x2D\x4E\x87\x65";
  const std::string cyrillic = "\x1F\x04\x40\x04\x20\x00\x38\x04\x0A\x00\x32\x04"s;
  for (const auto& [content, encoding] : std::vector<std::pair<std::string, std::string>>{
           {"\xFF\xFE" + widened("a text", 0, 1), "UTF-16"},
           {"\xFE\xFF" + widened("a text", 1, 0), "UTF-16"},
           {chinese, "UTF-16"},
           {widened("a text", 0, 1), "UTF-16LE"},
           {widened("hi", 1, 0), "UTF-16BE"},
           {cyrillic, "UTF-16LE"},
           {"\xFF\xFE\0\0"s + widened("a text", 0, 3), "UTF-32"},
           {widened("a text", 0, 3), "UTF-32LE"},
           {widened("a text", 3, 0), "UTF-32BE"}}) {
    const auto path = write_file(folder.path(), "wide.txt", content);
    const Status status = read_text(path).status();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(),
                HasSubstr("it is " + encoding +
                          ", and hanji reads UTF-8; convert "
                          "it: iconv -f " +
                          encoding + " -t UTF-8 '" + path.native() + "' > NEW.txt"));
  }
  for (const auto& content : {"\x01\0\x30\0\x31\0\x07\0"s, "ab\0c"s, "a\0ba\0ba\0b"s}) {
    const auto path = write_file(folder.path(), "tokens.bin", content);
    EXPECT_THAT(read_text(path).status().message(),
                HasSubstr("is NUL, so this is no text; for token files set data.tokens"));
  }
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
