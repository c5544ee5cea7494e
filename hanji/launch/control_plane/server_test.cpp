// Who may not come in: every stranger, while those who belong here go on.
#include "hanji/launch/control_plane/server.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "hanji/base/socket.h"
#include "hanji/launch/control_plane/greeting.h"
#include "hanji/test/eventually.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class ServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.place = {"127.0.0.1", 0};
    options.token = token_;
    options.num_nodes = 2;
    options.world_size = 4;
    options.build_id = "1.0+abc";
    options.on_refused = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      refused_.push_back(text);
    };
    options.on_lost = [this](Server&, const LostClient& lost) {
      const std::lock_guard lock(mutex_);
      lost_.push_back(lost);
    };
    server_ = Server::start(std::move(options)).or_throw();
  }
  StoreOptions rank(int index) const {
    StoreOptions options;
    options.server = server_->place();
    options.token = token_;
    options.index = index;
    options.world_size = 4;
    options.num_nodes = 2;
    options.build_id = "1.0+program";
    options.deadline = base::Deadline::after(20s);
    return options;
  }
  base::Fd stranger() const {
    return base::connect_tcp(server_->place(), "", base::Deadline::after(5s)).or_throw();
  }
  std::vector<std::string> refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }
  bool was_refused(const std::string& why) const {
    return eventually([&] {
      for (const std::string& text : refused()) {
        if (text.find(why) != text.npos) return true;
      }
      return false;
    });
  }
  std::vector<LostClient> lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  /// A whole handshake but for what `spoil` does to the hello afterwards; true if let in.
  bool closed(int socket) const {
    char byte = 0;
    return eventually([&] { return ::recv(socket, &byte, 1, 0) == 0 || errno == ECONNRESET; });
  }

  Token token_ = make_token().or_throw();
  mutable std::mutex mutex_;
  std::vector<std::string> refused_;
  std::vector<LostClient> lost_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, ServesWhoKnowsTheToken) {
  start();
  const auto one = Store::connect(rank(1)).or_throw();
  const auto two = Store::connect(rank(2)).or_throw();
  ASSERT_TRUE(one->set("address", "10.0.0.1:7").ok());
  EXPECT_EQ(*two->get("address", base::Deadline::after(5s)), "10.0.0.1:7");
  EXPECT_EQ(one->local_address(), "127.0.0.1");
  EXPECT_EQ(server_->num_refused(), 0);
}

TEST_F(ServerTest, RefusesAWrongTokenAndGoesOn) {
  start();
  const auto member = Store::connect(rank(0)).or_throw();
  StoreOptions wrong = rank(1);
  wrong.token[31] ^= std::byte{1};
  const Status status = Store::connect(wrong).status();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("token"));
  EXPECT_TRUE(was_refused("another token"));
  EXPECT_TRUE(member->set("k", "v").ok());
}

TEST_F(ServerTest, IsRefusedByAClientIfItDoesNotKnowTheTokenItself) {
  // Answers whatever it is told, as somebody would who waits at a stolen address.
  const auto listener = base::listen_tcp({"127.0.0.1", 0}).or_throw();
  std::thread impostor([&] {
    if (!base::wait_readable(listener.get(), base::Deadline::after(20s)).ok()) return;
    const auto socket = base::accept_tcp(listener.get());
    const std::vector<std::byte> noise(sizeof(Nonce) + sizeof(Answer));
    if (socket.ok()) static_cast<void>(base::send_message(socket->get(), noise));
    std::this_thread::sleep_for(300ms);
  });
  StoreOptions options;
  options.server = base::local_place(listener.get()).or_throw();
  options.token = token_;
  const Hello hello;
  auto socket = base::connect_tcp(options.server, "", base::Deadline::after(5s)).or_throw();
  const auto channel = greet(std::move(socket), hello, token_, base::Deadline::after(10s));
  EXPECT_EQ(channel.status().code(), Code::kMismatch);
  EXPECT_THAT(channel.status().message(), HasSubstr("server authentication failed"));
  impostor.join();
}

TEST_F(ServerTest, DropsScannersAndForeignProtocols) {
  start({.greeting_time = 200ms});
  stranger();
  EXPECT_TRUE(was_refused("left before"));
  const base::Fd http = stranger();
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_TRUE(base::send_message(http.get(), std::as_bytes(std::span(get))).ok());
  EXPECT_TRUE(closed(http.get()));
  EXPECT_TRUE(was_refused("within 200 ms"));
  const base::Fd flood = stranger();
  const std::vector<std::byte> much(1 << 20, std::byte{0xFF});
  static_cast<void>(base::send_message(flood.get(), much, {}, base::Deadline::after(100ms)));
  EXPECT_TRUE(was_refused("another token"));
}

TEST_F(ServerTest, DropsAClientThatDripsItsBytes) {
  start({.greeting_time = 300ms});
  const base::Fd slow = stranger();
  const std::byte one{'h'};
  const auto enough = base::Deadline::after(10s);
  // Each byte alone would keep a naive timer alive.
  while (base::send_message(slow.get(), std::span(&one, 1)).ok() && !enough.passed()) {
    std::this_thread::sleep_for(20ms);
    if (!refused().empty()) break;
  }
  EXPECT_TRUE(was_refused("within 300 ms"));
}

TEST_F(ServerTest, RefusesAReplayedHelloAndProof) {
  start();
  const auto play = [&](const Hello& hello, const base::Digest& proof) {
    base::Fd socket = stranger();
    static_cast<void>(base::send_message(socket.get(), bytes_of(hello)));
    Nonce nonce{};
    static_cast<void>(base::wait_readable(socket.get(), base::Deadline::after(5s)));
    EXPECT_EQ(::recv(socket.get(), nonce.data(), nonce.size(), 0), 32);
    const Transcript transcript{hello, nonce};
    const base::Digest right = transcript.client_proof(token_);
    static_cast<void>(base::send_message(socket.get(), proof == base::Digest{} ? right : proof));
    Answer answer;
    static_cast<void>(base::wait_readable(socket.get(), base::Deadline::after(5s)));
    const bool welcome = ::recv(socket.get(), &answer, sizeof(answer), 0) == sizeof(answer);
    return std::pair(welcome, right);
  };
  Hello hello;
  hello.role = static_cast<uint32_t>(Role::kRank);
  hello.world_size = 4;
  hello.num_nodes = 2;
  const auto [welcome, recorded] = play(hello, {});
  EXPECT_TRUE(welcome);
  EXPECT_FALSE(play(hello, recorded).first) << "the server draws a new nonce each time";
  EXPECT_TRUE(was_refused("another connection's words"));
}

TEST_F(ServerTest, BoundsConnectionsWithoutProof) {
  start({.max_pending = 8});
  std::vector<base::Fd> idle;
  for (int i = 0; i < 30; ++i) idle.push_back(stranger());
  EXPECT_TRUE(was_refused("more than 8 connections"));
  EXPECT_TRUE(eventually([&] { return server_->num_refused() >= 22; }));
  EXPECT_TRUE(Store::connect(rank(3)).ok()) << "who belongs here still comes in";
}

TEST_F(ServerTest, RefusesASecondOfTheSameRank) {
  start();
  const auto first = Store::connect(rank(2)).or_throw();
  const Status second = Store::connect(rank(2)).status();
  EXPECT_EQ(second.code(), Code::kInvalidArgument);
  EXPECT_THAT(second.message(), AllOf(HasSubstr("here already"), HasSubstr("127.0.0.1")));
  EXPECT_TRUE(was_refused("rank 2"));
  EXPECT_TRUE(first->set("k", "v").ok());
}

TEST_F(ServerTest, RefusesAnotherWorldBuildOrIndex) {
  start();
  const auto member = Store::connect(rank(0)).or_throw();
  StoreOptions world = rank(1);
  world.world_size = 8;
  EXPECT_THAT(Store::connect(world).status().message(), AllOf(HasSubstr("8"), HasSubstr("4")));
  StoreOptions nodes = rank(1);
  nodes.num_nodes = 3;
  EXPECT_EQ(Store::connect(nodes).status().code(), Code::kMismatch);
  StoreOptions build = rank(1);
  build.build_id = "1.0+other";
  EXPECT_THAT(Store::connect(build).status().message(),
              AllOf(HasSubstr("1.0+other"), HasSubstr("1.0+program")));
  EXPECT_EQ(Store::connect(rank(4)).status().code(), Code::kInvalidArgument);
  StoreOptions launcher = rank(1);
  launcher.role = Role::kLauncher;
  EXPECT_THAT(Store::connect(launcher).status().message(), HasSubstr("1.0+abc"));
  EXPECT_EQ(refused().size(), 5u);
  EXPECT_TRUE(member->set("k", "v").ok());
}

TEST_F(ServerTest, TellsWhoWasLostAndNotWhoSaidGoodbye) {
  start();
  Store::connect(rank(0)).or_throw();
  EXPECT_TRUE(server_->drain(base::Deadline::after(10s)));
  EXPECT_TRUE(lost().empty());
  EXPECT_EQ(server_->num_refused(), 0) << "who said goodbye does not come back";
  Hello hello;
  hello.role = static_cast<uint32_t>(Role::kRank);
  hello.index = 1;
  hello.world_size = 4;
  hello.num_nodes = 2;
  put_text("1.0+program", hello.build_id);
  put_text("far away", hello.host);
  { const Channel dies = greet(stranger(), hello, token_, base::Deadline::after(5s)).or_throw(); }
  ASSERT_TRUE(eventually([&] { return !lost().empty(); }));
  EXPECT_EQ(lost()[0].index, 1);
  EXPECT_EQ(lost()[0].host, "far away");
  EXPECT_EQ(lost()[0].why.code(), Code::kPeerLost);
}

TEST_F(ServerTest, LosesAClientThatIsSilentForTooLong) {
  start({.silence = 300ms});
  Hello hello;
  hello.role = static_cast<uint32_t>(Role::kRank);
  hello.world_size = 4;
  hello.num_nodes = 2;
  const Channel silent = greet(stranger(), hello, token_, base::Deadline::after(5s)).or_throw();
  ASSERT_TRUE(eventually([&] { return !lost().empty(); }));
  EXPECT_THAT(lost()[0].why.message(), HasSubstr("300 ms"));
}

TEST_F(ServerTest, EndsAConnectionWhoseFramesAreNotOurs) {
  start({.reconnect_time = 50ms});
  Hello hello;
  hello.role = static_cast<uint32_t>(Role::kRank);
  hello.world_size = 4;
  hello.num_nodes = 2;
  Channel channel = greet(stranger(), hello, token_, base::Deadline::after(5s)).or_throw();
  channel.queue("no request");
  ASSERT_TRUE(channel.flush().ok());
  ASSERT_TRUE(eventually([&] { return !lost().empty(); }));
  EXPECT_EQ(lost()[0].why.code(), Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::launch
