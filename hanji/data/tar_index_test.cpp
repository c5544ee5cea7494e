#include "hanji/data/internal/tar_index.h"

#include <gmock/gmock.h>

#include "hanji/base/random.h"
#include "hanji/data/internal/test_tar.h"

namespace hanji::data::internal {
namespace {

using testing::HasSubstr;

Result<std::vector<TarMember>> index_text(const std::string& archive) {
  return index_tar(std::as_bytes(std::span(archive)));
}

Status status_of_tar(const std::string& archive) { return index_text(archive).status(); }

TEST(TarIndex, FindsFilesInTheirOrder) {
  const std::string archive = tar_member("a/", "", '5') + tar_member("./a/one.txt", "one") +
                              tar_member("two.bin", std::string(700, 'x')) + tar_end();
  const auto members = index_text(archive).or_throw();
  ASSERT_EQ(members.size(), 2);
  EXPECT_EQ(members[0].name, "a/one.txt");
  EXPECT_EQ(archive.substr(members[0].begin, members[0].size), "one");
  EXPECT_EQ(members[1].name, "two.bin");
  EXPECT_EQ(archive.substr(members[1].begin, members[1].size), std::string(700, 'x'));
}

TEST(TarIndex, LongNamesOfGnuAndPaxAndPosixAreRead) {
  const std::string name(180, 'n');
  const std::string record = "189 path=" + name.substr(0, 179) + "\n";
  ASSERT_EQ(record.size(), 189);
  std::string prefixed = tar_member("file", "three");
  prefixed.replace(345, 6, "folder");
  std::string header = prefixed.substr(0, 512);
  seal_tar_header(header);
  const auto members =
      index_text(tar_member("././@LongLink", name + std::string(1, '\0'), 'L') +
                 tar_member("cut", "one") + tar_member("pax", record, 'x') +
                 tar_member("cut", "two") + tar_member("global", "20 path=not/for/us!\n", 'g') +
                 header + prefixed.substr(512) + tar_end())
          .or_throw();
  ASSERT_EQ(members.size(), 3);
  EXPECT_EQ(members[0].name, name);
  EXPECT_EQ(members[1].name, name.substr(0, 179));
  EXPECT_EQ(members[2].name, "folder/file");
}

TEST(TarIndex, TheLongNameOfAFolderIsNotThatOfTheNextFile) {
  const std::string name(180, 'n');
  const std::string record = "189 path=" + name.substr(0, 179) + "\n";
  const auto members = index_text(tar_member("././@LongLink", name + std::string(1, '\0'), 'L') +
                                  tar_member("cut", "", '5') + tar_member("a", "one") +
                                  tar_member("pax", record, 'x') + tar_member("cut", "", '5') +
                                  tar_member("b", "two") + tar_end())
                           .or_throw();
  ASSERT_EQ(members.size(), 2);
  EXPECT_EQ(members[0].name, "a");
  EXPECT_EQ(members[1].name, "b");
}

TEST(TarIndex, ASizeOfPaxOrOfGnusBinaryKindIsTheFiles) {
  std::string claims_less = tar_member("a", "four");
  claims_less.replace(124, 11, "00000000000");
  std::string header = claims_less.substr(0, 512);
  seal_tar_header(header);
  std::string binary = tar_member("b", "four").substr(0, 512);
  binary.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x04", 12));
  seal_tar_header(binary);
  const auto members =
      index_text(tar_member("pax", "10 size=4\n", 'x') + header + claims_less.substr(512) + binary +
                 tar_member("b", "four").substr(512) + tar_end())
          .or_throw();
  ASSERT_EQ(members.size(), 2);
  EXPECT_EQ(members[0].size, 4);
  EXPECT_EQ(members[1].size, 4);
}

TEST(TarIndex, NamesThatLeaveTheFolderAreRejected) {
  for (const char* name : {"/etc/passwd", "../up", "a/../../up", "a/.."}) {
    const Status status = status_of_tar(tar_member(name, "x") + tar_end());
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("no path below a folder")) << name;
  }
  EXPECT_TRUE(status_of_tar(tar_member("a..b/..c", "x") + tar_end()).ok());
}

TEST(TarIndex, LinksDevicesAndSparseFilesAreRejectedByName) {
  for (const char kind : {'1', '2', '3', '4', '6', 'S', '?'}) {
    const Status status = status_of_tar(tar_member("link", "", kind) + tar_end());
    EXPECT_EQ(status.code(), Code::kUnsupported) << kind;
    EXPECT_THAT(status.message(), HasSubstr("\"link\"")) << kind;
  }
  EXPECT_THAT(status_of_tar(tar_member("p", "22 GNU.sparse.major=1\n", 'x') + tar_end()).message(),
              HasSubstr("sparse"));
  EXPECT_THAT(status_of_tar("\x1F\x8B\x08 and so on").message(), HasSubstr("compressed"));
}

TEST(TarIndex, EveryCutIsAnError) {
  const std::string archive =
      tar_member("a", "one") + tar_member("b", std::string(600, 'x')) + tar_end();
  for (size_t size = 0; size < archive.size() - 1024 + 512; ++size) {
    EXPECT_EQ(status_of_tar(archive.substr(0, size)).code(), Code::kCorrupt) << size;
  }
}

TEST(TarIndex, SizesBeyondTheArchiveAreRejected) {
  for (const char* size : {"00000003001", "77777777777", "not a numb.", "           "}) {
    std::string header = tar_member("a", "").replace(124, 11, size).substr(0, 512);
    seal_tar_header(header);
    EXPECT_EQ(status_of_tar(header + std::string(512, 'x') + tar_end()).code(), Code::kCorrupt)
        << size;
  }
  std::string negative = tar_member("a", "").replace(124, 12, 12, '\xFF').substr(0, 512);
  seal_tar_header(negative);
  EXPECT_EQ(status_of_tar(negative + tar_end()).code(), Code::kCorrupt);
  for (const char* record : {"99 path=a\n", "x path=a\n", "3 =\n", "11 size=4x\n", "8 path=a"}) {
    EXPECT_EQ(status_of_tar(tar_member("p", record, 'x') + tar_end()).code(), Code::kCorrupt)
        << record;
  }
}

TEST(TarIndex, AnyFlippedByteOfAHeaderIsAnError) {
  const std::string archive = tar_member("a", "one") + tar_end();
  for (size_t at = 0; at < 512; ++at) {
    std::string damaged = archive;
    damaged[at] ^= 0x15;
    const auto members = index_text(damaged);
    // Spaces and zeros around the checksum's own digits mean the same.
    const bool is_own = at >= 148 && at < 156;
    EXPECT_TRUE(!members.ok() || is_own) << at;
  }
}

}  // namespace
}  // namespace hanji::data::internal
