#include "hanji/base/cold_file.h"

#include <gtest/gtest.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

TEST(ColdFile, PagesLeaveTheCacheAndComeBackWithTheSameBytes) {
  const test::TemporaryFolder folder("/var/tmp");
  const std::string bytes(size_t{3} << 20, 'x');
  throw_if_error(write_file_atomic(folder.path() / "x", bytes));
  const double share = drop_cached_pages(folder.path() / "x").or_throw();
  if (share > 0.5) GTEST_SKIP() << "a file system in memory";
  EXPECT_LT(share, 0.1);
  EXPECT_EQ(read_file(folder.path() / "x").or_throw(), bytes);
}

TEST(ColdFile, PagesThatAreMappedAreReportedToStay) {
  const test::TemporaryFolder folder("/var/tmp");
  throw_if_error(write_file_atomic(folder.path() / "x", std::string(size_t{1} << 20, 'x')));
  const auto mapped = MappedFile::open(folder.path() / "x").or_throw();
  int sum = 0;
  for (const std::byte one : mapped.bytes()) sum += static_cast<int>(one);
  EXPECT_EQ(sum, ('x') << 20);
  EXPECT_GT(drop_cached_pages(folder.path() / "x").or_throw(), 0.9);
}

TEST(ColdFile, ReadsPastTheCacheOrSaysWhyNot) {
  const test::TemporaryFolder folder("/var/tmp");
  throw_if_error(write_file_atomic(folder.path() / "x", std::string(size_t{9} << 20, 'x')));
  const auto rate = read_past_cache(folder.path() / "x", 10);
  if (!rate.ok()) GTEST_SKIP() << rate.status().message();
  EXPECT_GT(*rate, 0);
  throw_if_error(write_file_atomic(folder.path() / "empty", ""));
  EXPECT_EQ(read_past_cache(folder.path() / "empty", 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(drop_cached_pages(folder.path() / "none").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::base
