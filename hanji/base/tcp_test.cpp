#include "hanji/base/tcp.h"

#include <gmock/gmock.h>

#include "hanji/base/socket.h"

namespace hanji::base {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

TEST(HostPort, IsReadBackAsItIsWritten) {
  for (const HostPort& place :
       {HostPort{"node1", 29500}, HostPort{"::1", 1}, HostPort{"10.0.0.1", 0}}) {
    const auto read = parse_host_port(to_text(place));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, place);
  }
  EXPECT_EQ(to_text({"::1", 7}), "[::1]:7");
}

TEST(HostPort, RefusesWhatIsAmbiguousOrOutOfRange) {
  for (const char* text :
       {"", "node", "node:", ":80", "::1:80", "node:-1", "node:65536", "node:8x"}) {
    EXPECT_EQ(parse_host_port(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Tcp, ConnectsToExactlyTheAddressThatListens) {
  const auto listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const auto place = local_place(listener->get());
  ASSERT_TRUE(place.ok());
  const auto there = connect_tcp(*place, "127.0.0.2", Deadline::after(5s));
  ASSERT_TRUE(there.ok()) << there.status().message();
  ASSERT_TRUE(wait_readable(listener->get(), Deadline::after(5s)).ok());
  const auto here = accept_tcp(listener->get());
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(peer_place(here->get())->host, "127.0.0.2");
  const auto other = connect_tcp({"127.0.0.3", place->port}, "", Deadline::after(5s));
  EXPECT_EQ(other.status().code(), Code::kPeerLost);
}

TEST(Tcp, SpeaksIpv6WhereThereIsOne) {
  const auto listener = listen_tcp({"::1", 0});
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.status().message();
  EXPECT_TRUE(connect_tcp(*local_place(listener->get()), "", Deadline::after(5s)).ok());
}

TEST(Tcp, RefusesATakenPortAndAForeignAddress) {
  const auto listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_THAT(listen_tcp(*local_place(listener->get())).status().message(), HasSubstr("taken"));
  EXPECT_THAT(listen_tcp({"192.0.2.1", 0}).status().message(),
              HasSubstr("no address of this host"));
}

TEST(Interfaces, AreFoundByNameAndByAddress) {
  const auto loopback = addresses_of_interface("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status().message();
  EXPECT_THAT(*loopback, Contains("127.0.0.1"));
  EXPECT_THAT(*addresses_of_interface("127.0.0.1"), Contains("127.0.0.1"));
  const Status none = addresses_of_interface("no-such-card").status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("lo"));
}

TEST(Interfaces, TheRouteTellsTheOwnAddress) {
  EXPECT_EQ(*address_towards({"127.0.0.1", 9}), "127.0.0.1");
}

TEST(Resolve, NamesWhatHasNoAddress) {
  EXPECT_THAT(*resolve({"127.0.0.1", 80}), Contains(HostPort{"127.0.0.1", 80}));
  EXPECT_THAT(resolve({"no.such.host.invalid", 80}).status().message(),
              HasSubstr("no.such.host.invalid"));
}

}  // namespace
}  // namespace hanji::base
