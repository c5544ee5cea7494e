#include "hanji/data/make_beton.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "hanji/base/file.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Samples of 100,000 to 108,000 bytes, so that a page of 8 MiB has about 80, and a number.
BetonRecipe numbered_recipe(uint64_t num_samples, std::atomic<int>* num_read = nullptr) {
  return {.fields = {{"bytes", BetonType::kBytes}, {"number", BetonType::kInt}},
          .num_samples = num_samples,
          .max_sample_bytes = 108'000,
          .provenance = R"({"from":"a test"})",
          .key = 7,
          .read = [num_read](uint64_t i, BetonSample& out) {
            if (num_read) ++*num_read;
            out.bytes.assign(100'000 + i * 37 % 8000, static_cast<std::byte>(i));
            out.values = {{.bytes = out.bytes}, {.integer = static_cast<int64_t>(i)}};
            return Status();
          }};
}

class MakeBeton : public testing::Test {
 protected:
  fs::path path(std::string_view name) const { return folder_.path() / name; }
  std::string content(std::string_view name) const {
    return base::read_file(path(name)).or_throw();
  }
  size_t num_files() const { return base::list_files(folder_.path()).or_throw().size(); }

  /// Makes `name` until `stop_at` samples are done.
  MadeBeton interrupt(std::string_view name, const BetonRecipe& recipe, uint64_t stop_at) const {
    return make_beton(recipe, path(name),
                      {.num_threads = 2,
                       .proceed = [=](uint64_t done, uint64_t) { return done < stop_at; }})
        .or_throw();
  }

  const test::TemporaryFolder folder_;
};

TEST_F(MakeBeton, AnyNumberOfThreadsWritesTheSameBytes) {
  for (const int threads : {1, 2, 7}) {
    const auto made =
        make_beton(numbered_recipe(200), path(fmt::format("{}", threads)), {.num_threads = threads})
            .or_throw();
    ASSERT_TRUE(made.is_whole);
    EXPECT_EQ(made.num_samples, 200);
  }
  EXPECT_EQ(content("1"), content("2"));
  EXPECT_EQ(content("1"), content("7"));
  const auto file = BetonFile::open(path("1")).or_throw();
  EXPECT_EQ(file.verify([](const BetonMistake&) {}), 0);
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(file.read(i, 1).or_throw().integer, i);
    EXPECT_EQ(file.read(i, 0).or_throw().bytes.size(), 100'000 + i * 37 % 8000);
  }
}

TEST_F(MakeBeton, AnInterruptedFileIsContinuedAndHasTheSameBytes) {
  ASSERT_TRUE(make_beton(numbered_recipe(300), path("whole")).or_throw().is_whole);
  EXPECT_FALSE(interrupt("x", numbered_recipe(300), 100).is_whole);
  EXPECT_FALSE(fs::exists(path("x")));
  EXPECT_FALSE(interrupt("x", numbered_recipe(300), 250).is_whole);
  std::atomic<int> num_read = 0;
  const auto made = make_beton(numbered_recipe(300, &num_read), path("x")).or_throw();
  EXPECT_TRUE(made.is_whole);
  EXPECT_GE(made.num_resumed, 230) << "three pages were whole";
  EXPECT_EQ(num_read, 300 - made.num_resumed);
  EXPECT_EQ(content("x"), content("whole"));
  EXPECT_EQ(num_files(), 2) << "nothing else is left";
}

/// As a power cut leaves them: bytes that the journal notes are not in the file.
TEST_F(MakeBeton, PagesThatDidNotReachTheDiskAreWrittenAgain) {
  ASSERT_TRUE(make_beton(numbered_recipe(300), path("whole")).or_throw().is_whole);
  interrupt("x", numbered_recipe(300), 299);
  std::string part = content(".x.part");
  part[part.size() / 2] ^= 1;
  internal::write_file(folder_.path(), ".x.part", part);
  EXPECT_FALSE(interrupt("x", numbered_recipe(300), 290).num_resumed > 160);
  internal::write_file(folder_.path(), ".x.part", content(".x.part").substr(0, 20'000'000));
  EXPECT_TRUE(make_beton(numbered_recipe(300), path("x")).or_throw().is_whole);
  EXPECT_EQ(content("x"), content("whole"));
}

TEST_F(MakeBeton, ADamagedJournalLosesPagesAndNoBytes) {
  ASSERT_TRUE(make_beton(numbered_recipe(300), path("whole")).or_throw().is_whole);
  interrupt("x", numbered_recipe(300), 299);
  const std::string journal = content(".x.part.journal");
  for (const size_t at : {size_t{0}, size_t{20}, journal.size() / 2, journal.size() - 1}) {
    std::string damaged = journal;
    damaged[at] ^= 1;
    internal::write_file(folder_.path(), ".x.part.journal", damaged);
    EXPECT_LT(interrupt("x", numbered_recipe(300), 299).num_resumed, 230) << at;
    internal::write_file(folder_.path(), ".x.part.journal", journal.substr(0, at));
    EXPECT_LT(interrupt("x", numbered_recipe(300), 299).num_resumed, 230) << at;
  }
  EXPECT_TRUE(make_beton(numbered_recipe(300), path("x")).or_throw().is_whole);
  EXPECT_EQ(content("x"), content("whole"));
}

TEST_F(MakeBeton, AnotherRecipeDoesNotContinueAFile) {
  interrupt("x", numbered_recipe(300), 100);
  BetonRecipe other = numbered_recipe(300);
  other.key = 8;
  EXPECT_THAT(make_beton(other, path("x")).status().message(),
              HasSubstr("an interrupted file of other samples"));
  EXPECT_THAT(make_beton(numbered_recipe(301), path("x")).status().message(),
              HasSubstr("an interrupted file of other samples"));
  EXPECT_TRUE(make_beton(numbered_recipe(300), path("x")).or_throw().is_whole);
}

TEST_F(MakeBeton, EverySampleThatCannotBeReadIsNamedAndNothingIsLeft) {
  BetonRecipe recipe = numbered_recipe(40);
  recipe.read = [read = recipe.read](uint64_t i, BetonSample& out) {
    if (i % 3 != 2) return read(i, out);
    return base::corrupt(fmt::format("input {} is damaged", i));
  };
  const Status status = make_beton(recipe, path("x"), {.num_threads = 3}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("13 of 40 samples"));
  EXPECT_THAT(status.message(), HasSubstr("sample 29: input 29 is damaged"));
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("sample 32"))) << "ten are listed";
  EXPECT_EQ(num_files(), 0);
}

TEST_F(MakeBeton, AFailureOrAnExceptionEndsItAndKeepsWhatIsWritten) {
  BetonRecipe recipe = numbered_recipe(300);
  recipe.read = [read = recipe.read](uint64_t i, BetonSample& out) -> Status {
    if (i == 200) throw std::runtime_error("no memory");
    return read(i, out);
  };
  const Status status = make_beton(recipe, path("x")).status();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_EQ(status.message(), "sample 200: no memory");
  EXPECT_GE(make_beton(numbered_recipe(300), path("x")).or_throw().num_resumed, 150);
}

TEST_F(MakeBeton, ReplacesNoFile) {
  internal::write_file(folder_.path(), "x", "old");
  EXPECT_EQ(make_beton(numbered_recipe(3), path("x")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(content("x"), "old");
}

}  // namespace
}  // namespace hanji::data
