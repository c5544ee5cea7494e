#include "hanji/train/skip_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;
using testing::Not;

class SkipLogTest : public testing::Test {
 protected:
  static Status skipped(int sample) { return base::corrupt(fmt::format("sample {}:", sample)); }
  std::string told() const { return base::read_file(path_).or_throw(); }
  int64_t num_lines() const {
    const std::string all = told();
    return std::ranges::count(all, '\n');
  }

  test::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "log";
  base::Fd file_ = base::Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
  SkipLog log_{base::Log(file_.get(), "skip:")};
};

TEST_F(SkipLogTest, EachSampleHasALineHoweverOftenItIsRead) {
  for (int epoch = 0; epoch < 20; ++epoch) log_.add(skipped(3));
  log_.add(skipped(200));
  EXPECT_EQ(num_lines(), 2);
  EXPECT_THAT(told(), HasSubstr("sample 200:"));
  for (int sample = 4; sample < 100; ++sample) log_.add(skipped(sample));
  EXPECT_EQ(num_lines(), SkipLog::kMaxLines + 1);
  EXPECT_THAT(told(), HasSubstr("sample 11:"));
  EXPECT_THAT(told(), Not(HasSubstr("sample 12:")));
  EXPECT_THAT(told(), HasSubstr("more samples are skipped without a line each"));
}

TEST_F(SkipLogTest, WhatIsTimedBeforeARunIsNotToldOf) {
  {
    const SkipLog::Silence while_timing(&log_);
    const SkipLog::Silence of_none(nullptr);
    log_.add(skipped(3));
  }
  EXPECT_EQ(told(), "");
  log_.add(skipped(3));
  EXPECT_EQ(num_lines(), 1);
}

}  // namespace
}  // namespace hanji::train
