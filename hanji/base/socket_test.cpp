#include "hanji/base/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "hanji/base/file.h"

namespace hanji::base {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

Deadline soon() { return Deadline::after(20s); }

int num_open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class SocketPair : public testing::Test {
 protected:
  SocketPair() {
    auto ends = *socket_pair();
    left_ = std::move(ends.first);
    right_ = std::move(ends.second);
  }
  Fd left_, right_;
};

TEST_F(SocketPair, MessagesKeepTheirBounds) {
  ASSERT_TRUE(send_message(left_.get(), bytes_in("one")).ok());
  ASSERT_TRUE(send_message(left_.get(), bytes_in("three")).ok());
  EXPECT_EQ(text_of(*receive_message(right_.get(), 100, soon())), "one");
  EXPECT_EQ(text_of(*receive_message(right_.get(), 5, soon())), "three");
}

TEST_F(SocketPair, DescriptorsArriveWorkingAndClosedOnExec) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  Fd read_end(pipe_ends[0]);
  {
    const Fd write_end(pipe_ends[1]);
    const int descriptors[] = {write_end.get(), write_end.get()};
    ASSERT_TRUE(send_message(left_.get(), bytes_in("x"), descriptors).ok());
  }
  auto message = receive_message(right_.get(), 16, soon());
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->descriptors.size(), 2u);
  EXPECT_NE(::fcntl(message->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(message->descriptors[1].get(), "p", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 1);
  message->descriptors.clear();
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0);  // no copy is left open anywhere
}

TEST_F(SocketPair, ATooLongMessageIsCorruptAndItsDescriptorsAreClosed) {
  const int before = num_open_descriptors();
  const std::vector<int> descriptors(10, left_.get());
  ASSERT_TRUE(send_message(left_.get(), bytes_in("too long"), descriptors).ok());
  const auto message = receive_message(right_.get(), 3, soon());
  EXPECT_EQ(message.status().code(), Code::kCorrupt);
  EXPECT_EQ(num_open_descriptors(), before);
}

TEST_F(SocketPair, DescriptorsWithoutAMessageToCarryThemAreClosedOnUnread) {
  const int before = num_open_descriptors();
  {
    auto ends = *socket_pair();
    const int descriptors[] = {left_.get()};
    ASSERT_TRUE(send_message(ends.first.get(), bytes_in("x"), descriptors).ok());
  }
  EXPECT_EQ(num_open_descriptors(), before);
}

TEST_F(SocketPair, TheMostDescriptorsArriveAndOneMoreIsRefused) {
  std::vector<int> descriptors(kMaxDescriptors, left_.get());
  ASSERT_TRUE(send_message(left_.get(), bytes_in("x"), descriptors).ok());
  EXPECT_EQ(receive_message(right_.get(), 1, soon())->descriptors.size(), kMaxDescriptors);
  descriptors.push_back(left_.get());
  EXPECT_EQ(send_message(left_.get(), bytes_in("x"), descriptors).code(), Code::kInvalidArgument);
  EXPECT_EQ(send_message(left_.get(), {}).code(), Code::kInvalidArgument);
}

TEST_F(SocketPair, AClosedPeerIsLostInBothDirections) {
  right_.reset();
  EXPECT_EQ(send_message(left_.get(), bytes_in("x")).code(), Code::kPeerLost);
  EXPECT_EQ(receive_message(left_.get(), 10, soon()).status().code(), Code::kPeerLost);
}

TEST_F(SocketPair, SilenceEndsAtTheDeadline) {
  EXPECT_EQ(receive_message(left_.get(), 10, Deadline::after(5ms)).status().code(), Code::kTimeout);
  EXPECT_EQ(wait_readable(left_.get(), Deadline::after(0ms)).code(), Code::kTimeout);
}

TEST_F(SocketPair, ASendThatNobodyTakesEndsAtTheDeadline) {
  Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) {
    status = send_message(left_.get(), bytes_in("fill"), {}, Deadline::after(5ms));
  }
  EXPECT_EQ(status.code(), Code::kTimeout);
}

TEST(SocketStream, CarriesMoreThanItsBufferHolds) {
  auto ends = *socket_pair(SocketKind::kStream);
  const std::string sent(8 << 20, 'z');
  const std::jthread sender(
      [&] { EXPECT_TRUE(send_message(ends.first.get(), bytes_in(sent), {}, soon()).ok()); });
  std::string received;
  while (received.size() < sent.size()) {
    const auto part = receive_message(ends.second.get(), 1 << 16, soon());
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    received += text_of(*part);
  }
  EXPECT_EQ(received, sent);
}

class SocketPath : public testing::Test {
 protected:
  SocketPath() { folder_ = ::mkdtemp(template_); }
  ~SocketPath() override { static_cast<void>(remove_tree(folder_)); }
  char template_[32] = "/tmp/hanji_socket_XXXXXX";
  std::filesystem::path folder_;
};

TEST_F(SocketPath, ConnectWaitsForAListenerAndLearnsWhoItIs) {
  const auto path = folder_ / "meet";
  Result<Fd> client = not_found("");
  std::jthread connecting([&] { client = connect_unix(path, soon()); });
  std::this_thread::sleep_for(20ms);
  const auto listener = listen_unix(path);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const auto server = accept_unix((*listener).get(), soon());
  connecting.join();
  ASSERT_TRUE(server.ok() && client.ok());
  const auto peer = peer_credentials((*server).get());
  EXPECT_EQ((*peer).pid, ::getpid());
  EXPECT_EQ((*peer).uid, ::getuid());
}

TEST_F(SocketPath, ConnectGivesUpAtTheDeadline) {
  const auto result = connect_unix(folder_ / "nobody", Deadline::after(10ms));
  EXPECT_EQ(result.status().code(), Code::kTimeout);
  EXPECT_THAT(result.status().message(), HasSubstr("nobody listens"));
}

TEST_F(SocketPath, ASocketThatADeadListenerLeftIsNoListener) {
  ASSERT_TRUE(listen_unix(folder_ / "stale").ok());
  EXPECT_EQ(connect_unix(folder_ / "stale", Deadline::after(5ms)).status().code(), Code::kTimeout);
  EXPECT_FALSE(listen_unix(folder_ / "stale").ok());
}

TEST_F(SocketPath, AcceptEndsAtTheDeadline) {
  const auto listener = listen_unix(folder_ / "meet");
  EXPECT_EQ(accept_unix((*listener).get(), Deadline::after(5ms)).status().code(), Code::kTimeout);
}

TEST_F(SocketPath, APathLongerThanAnAddressIsRefusedNotCut) {
  const auto path = folder_ / std::string(200, 'a');
  EXPECT_EQ(listen_unix(path).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(connect_unix(path, soon()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::base
