#include "hanji/launch/control_plane/channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "hanji/base/socket.h"

namespace hanji::launch {
namespace {

base::Digest key_of(int value) {
  base::Digest key{};
  key.fill(static_cast<std::byte>(value));
  return key;
}

TEST(Frame, OpensWithItsKeyAndNumberOnly) {
  const std::string sealed = seal_frame(key_of(1), 4, "content");
  std::string input = sealed + "rest";
  EXPECT_EQ(**open_frame(key_of(1), 4, input), "content");
  EXPECT_EQ(input, "rest");
  for (const auto& [key, number] : {std::pair(2, 4), std::pair(1, 5), std::pair(1, 3)}) {
    input = sealed;
    EXPECT_EQ(open_frame(key_of(key), number, input).status().code(), Code::kCorrupt);
  }
}

TEST(Frame, WithOneChangedBitIsRefused) {
  const std::string sealed = seal_frame(key_of(1), 0, "content");
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string input = sealed;
    input[i] = static_cast<char>(input[i] ^ 1);
    const auto opened = open_frame(key_of(1), 0, input);
    // A length that grew waits for more, and gives nothing either.
    EXPECT_TRUE(!opened.ok() || !opened->has_value()) << i;
  }
}

TEST(Frame, OfAGibibyteIsRefusedAtItsLength) {
  std::string input("\0\0\0\x40", 4);
  EXPECT_EQ(open_frame(key_of(1), 0, input).status().code(), Code::kCorrupt);
}

TEST(Frame, ThatHasNotComeWholeIsAwaited) {
  const std::string sealed = seal_frame(key_of(1), 0, "content");
  for (size_t size = 0; size < sealed.size(); ++size) {
    std::string input = sealed.substr(0, size);
    const auto opened = open_frame(key_of(1), 0, input);
    ASSERT_TRUE(opened.ok());
    EXPECT_FALSE(opened->has_value());
    EXPECT_EQ(input.size(), size);
  }
}

TEST(Channel, CarriesFramesInOrderBothWays) {
  auto ends = base::socket_pair(base::SocketKind::kStream);
  Channel left(std::move(ends->first), {.send = key_of(1), .receive = key_of(2)});
  Channel right(std::move(ends->second), {.send = key_of(2), .receive = key_of(1)});
  for (const char* text : {"one", "", "three"}) left.queue(text);
  right.queue("back");
  ASSERT_TRUE(left.flush().ok() && right.flush().ok());
  // Both ends are blocking here, but what was sent is all there.
  for (Channel* channel : {&left, &right}) {
    const int flags = ::fcntl(channel->fd(), F_GETFL);
    ASSERT_EQ(::fcntl(channel->fd(), F_SETFL, flags | O_NONBLOCK), 0);
    ASSERT_TRUE(channel->receive().ok());
  }
  for (const char* text : {"one", "", "three"}) EXPECT_EQ(**right.next(), text);
  EXPECT_FALSE(right.next()->has_value());
  EXPECT_EQ(**left.next(), "back");
}

}  // namespace
}  // namespace hanji::launch
