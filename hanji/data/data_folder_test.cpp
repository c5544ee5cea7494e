#include "hanji/data/data_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using internal::write_file;
using testing::ElementsAre;
using testing::IsEmpty;

class DataFolderTest : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void add(const std::string& name) const { write_file(folder_.path(), name, "x"); }

  test::TemporaryFolder folder_;
};

TEST_F(DataFolderTest, NamesThatAreHiddenOrOfASystemAreLeftOutWithAllBelow) {
  for (const char* name : {"a/1", "a/.DS_Store", "a/._1", "a/Thumbs.db", "a/.cache/deep/2",
                           ".ipynb_checkpoints/1", "__MACOSX/a/1", "lost+found/1", "b..c", "2"}) {
    add(name);
  }
  const auto found = list_data(folder_.path(), base::Recurse::kYes).or_throw();
  EXPECT_THAT(found.files, ElementsAre(at("2"), at("a/1"), at("b..c")));
  EXPECT_THAT(found.left_out,
              ElementsAre(at(".ipynb_checkpoints"), at("__MACOSX"), at("a/.DS_Store"), at("a/._1"),
                          at("a/.cache"), at("a/Thumbs.db"), at("lost+found")));
  const auto top = list_data(folder_.path()).or_throw();
  EXPECT_THAT(top.folders, ElementsAre(at("a")));
  EXPECT_THAT(top.files, ElementsAre(at("2"), at("b..c")));
}

TEST_F(DataFolderTest, WhatIsNeitherFileNorFolderIsListedApart) {
  add("a/1");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", at("gone"));
  fs::create_symlink(at("a/1"), at("link"));
  fs::create_directory_symlink(at("a"), at("more"));
  const auto found = list_data(folder_.path(), base::Recurse::kYes).or_throw();
  EXPECT_THAT(found.files, ElementsAre(at("a/1"), at("link")));
  EXPECT_THAT(found.folders, ElementsAre(at("more")));
  EXPECT_THAT(found.others, ElementsAre(at("gone"), at("pipe")));
  EXPECT_THAT(found.left_out, IsEmpty());
  EXPECT_EQ(list_data(at("none")).status().code(), Code::kNotFound);
}

TEST_F(DataFolderTest, ANoteCountsAndGivesAnExample) {
  std::vector<std::string> notes;
  note_metadata(notes, {});
  note_metadata(notes, {at(".a"), at(".b")});
  EXPECT_THAT(notes, ElementsAre("left out 2 names (hidden, or added by a system), such as " +
                                 at(".a").native()));
}

}  // namespace
}  // namespace hanji::data
