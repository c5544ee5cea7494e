#include "hanji/launch/internal/echo.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;

/// A rank whose words are echoed into a pipe; the test is rank and reader.
class EchoOfARank : public testing::Test {
 protected:
  EchoOfARank() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe");
    reader_ = base::Fd(ends[0]);
    writer_ = base::Fd(ends[1]);
    log_ = base::Fd(::open(path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    echo_.emplace(*Echo::create(log_.get(), writer_.get()));
  }
  std::filesystem::path path() const { return folder_.path() / "log"; }
  void say(const std::string& text) {
    const ssize_t size = static_cast<ssize_t>(text.size());
    ASSERT_EQ(::write(echo_->write_end(), text.data(), text.size()), size);
    echo_->pump();
  }
  std::string heard() {
    std::string text;
    std::array<char, 4096> piece;
    ssize_t count = 0;
    while ((count = ::read(reader_.get(), piece.data(), piece.size())) > 0) {
      text.append(piece.data(), count);
      echo_->pump();
    }
    return text;
  }

  test::TemporaryFolder folder_;
  base::Fd reader_;
  base::Fd writer_;
  base::Fd log_;
  std::optional<Echo> echo_;
};

TEST_F(EchoOfARank, GoesToLogAndReader) {
  say("one\n");
  say("two\n");
  EXPECT_EQ(heard(), "one\ntwo\n");
  EXPECT_EQ(*base::read_file(path()), "one\ntwo\n");
}

TEST_F(EchoOfARank, EndsWhenTheRankEnds) {
  say("last words");
  echo_->close_write_end();
  echo_->pump();
  EXPECT_EQ(echo_->read_end(), -1);
  EXPECT_EQ(heard(), "last words");
}

TEST_F(EchoOfARank, AReaderWhoLeavesStopsNothing) {
  say("heard\n");
  reader_.reset();
  say("unheard\n");
  say("too\n");
  EXPECT_EQ(echo_->waiting_for(), -1);
  EXPECT_EQ(*base::read_file(path()), "heard\nunheard\ntoo\n");
}

TEST_F(EchoOfARank, AReaderWhoSleepsStopsNothingAndIsToldWhatIsMissing) {
  const std::string line(4095, 'x');
  for (int i = 0; i < 512; ++i) say(line + "\n");  // 2 MiB, twice the backlog
  EXPECT_EQ(std::filesystem::file_size(path()), 512 * 4096u);
  EXPECT_EQ(echo_->waiting_for(), writer_.get());
  EXPECT_LT(heard().size(), 512 * 4096u);
  say("later\n");
  const std::string rest = heard();
  EXPECT_THAT(rest, HasSubstr("bytes left out here; the log has them"));
  EXPECT_THAT(rest, EndsWith("later\n"));
}

TEST_F(EchoOfARank, TheEndDoesNotWaitForASleeperForEver) {
  for (int i = 0; i < 64; ++i) say(std::string(4096, 'x'));
  echo_->finish(base::Deadline::after(10ms));
  EXPECT_EQ(echo_->waiting_for(), writer_.get());
}

}  // namespace
}  // namespace hanji::launch
