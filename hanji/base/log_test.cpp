#include "hanji/base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "hanji/base/fd.h"
#include "hanji/base/file.h"

namespace hanji::base {
namespace {

using testing::MatchesRegex;

class LogFile : public testing::Test {
 protected:
  LogFile() : fd_(::mkostemp(path_, O_APPEND)) {}
  ~LogFile() override { ::unlink(path_); }
  char path_[32] = "/tmp/hanji_log_XXXXXX";
  Fd fd_;
};

TEST_F(LogFile, ALineHasTimePrefixLevelAndText) {
  const Log log(fd_.get(), "rank 2");
  log.info("starts");
  log.warn("slow");
  log.error("lost");
  const std::string time = "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9.]+Z";
  EXPECT_THAT(*read_file(path_),
              MatchesRegex(time + " rank 2 starts\n" + time + " rank 2 warning: slow\n" + time +
                           " rank 2 error: lost\n"));
}

TEST_F(LogFile, LinesOfSeveralThreadsStayWhole) {
  const std::string text(200, 'x');
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) Log(fd_.get(), "").info(text);
    });
  }
  threads.clear();
  const std::string content = *read_file(path_);
  const size_t line = std::string("2026-11-21T09:40:19.123Z ").size() + text.size() + 1;
  ASSERT_EQ(content.size(), 200 * line);
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_EQ(content.substr((i + 1) * line - text.size() - 1, text.size() + 1), text + "\n");
  }
}

TEST(Log, WithoutADescriptorWritesNowhere) {
  errno = 0;
  Log(-1, "rank 0").error("nobody hears");
  EXPECT_EQ(errno, 0) << "a write to descriptor -1 sets EBADF";
}

TEST(FormatTime, IsIso8601InUtc) {
  EXPECT_EQ(format_time(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(1'700'000'000'123'456'789), "2023-11-14T22:13:20.123Z");
}

}  // namespace
}  // namespace hanji::base
