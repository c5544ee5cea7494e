// The store under bad links: a proxy between client and server resets, holds back or slows down.
#include "hanji/launch/store.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "hanji/launch/control_plane/server.h"
#include "hanji/test/run_threads.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Forwards bytes both ways, as well as it is told to.
class Link {
 public:
  explicit Link(const base::HostPort& server)
      : server_(server),
        listener_(base::listen_tcp({"127.0.0.1", 0}).or_throw()),
        place_(base::local_place(listener_.get()).or_throw()),
        thread_([this] { run(); }) {}
  ~Link() {
    stopping_ = true;
    thread_.join();
  }

  const base::HostPort& place() const { return place_; }
  /// Ends every connection with a reset.
  void reset() { resetting_ = true; }
  /// Nothing passes, and nothing is lost, as TCP makes it.
  void hold(bool held) { held_ = held; }
  void slow_down(std::chrono::milliseconds pause) { pause_ms_ = pause.count(); }
  int num_connections() const { return num_connections_; }

 private:
  struct Pair {
    std::array<base::Fd, 2> ends;
  };

  void run() {
    while (!stopping_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + pause_ms_));
      if (resetting_.exchange(false)) reset_all();
      if (held_) continue;
      if (auto socket = base::accept_tcp(listener_.get()); socket.ok()) {
        auto other = base::connect_tcp(server_, "", base::Deadline::after(5s));
        if (!other.ok()) continue;
        ++num_connections_;
        pairs_.push_back({{*std::move(socket), *std::move(other)}});
      }
      std::erase_if(pairs_, [&](Pair& pair) { return !pump(pair, 0) || !pump(pair, 1); });
    }
  }

  void reset_all() {
    for (Pair& pair : pairs_) {
      for (const base::Fd& end : pair.ends) {
        const linger now{1, 0};
        ::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      }
    }
    pairs_.clear();
  }

  static bool pump(Pair& pair, int from) {
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(pair.ends[from].get(), bytes.data(), bytes.size(), 0);
    if (got < 0) return errno == EAGAIN;
    return got > 0 && ::send(pair.ends[1 - from].get(), bytes.data(), got, MSG_NOSIGNAL) == got;
  }

  const base::HostPort server_;
  base::Fd listener_;
  const base::HostPort place_;
  std::list<Pair> pairs_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> resetting_ = false;
  std::atomic<bool> held_ = false;
  std::atomic<int64_t> pause_ms_ = 0;
  std::atomic<int> num_connections_ = 0;
  std::thread thread_;
};

class StoreTest : public testing::Test {
 protected:
  void start(std::chrono::milliseconds silence = 15s) {
    ServerOptions options;
    options.place = {"127.0.0.1", 0};
    options.world_size = 4;
    options.silence = silence;
    options.on_lost = [this](Server& server, const LostClient& lost) {
      server.set_if_absent("lost/" + std::to_string(lost.index), lost.why.message());
      ++num_lost_;
    };
    silence_ = silence;
    server_ = Server::start(std::move(options)).or_throw();
    link_ = std::make_unique<Link>(server_->place());
  }
  std::shared_ptr<Store> store(int rank, const base::HostPort& server) {
    StoreOptions options;
    options.server = server;
    options.index = rank;
    options.world_size = 4;
    options.silence = silence_;
    options.deadline = base::Deadline::after(20s);
    return Store::connect(std::move(options)).or_throw();
  }
  std::shared_ptr<Store> near(int rank) { return store(rank, server_->place()); }
  std::shared_ptr<Store> far(int rank) { return store(rank, link_->place()); }
  static base::Deadline soon() { return base::Deadline::after(20s); }

  std::chrono::milliseconds silence_{};
  std::atomic<int> num_lost_ = 0;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Link> link_;
};

TEST_F(StoreTest, OffersWhatAStoreOfC10dNeeds) {
  start();
  const auto store = near(0);
  EXPECT_TRUE(store->set("k", std::string("\0\xFF", 2)).ok());
  EXPECT_EQ(*store->get("k", soon()), std::string("\0\xFF", 2));
  EXPECT_EQ(*store->add("n", 3), 3);
  EXPECT_EQ(*store->add("n", -1), 2);
  EXPECT_EQ(*store->append("s", "abc"), 3);
  EXPECT_EQ(*store->compare_set("c", "", "1"), "1");
  EXPECT_EQ(*store->compare_set("c", "0", "2"), "1");
  EXPECT_EQ(*store->num_keys(), 4);
  const std::vector<std::string> keys = {"k", "n"};
  EXPECT_TRUE(store->wait(keys, soon()).ok());
  EXPECT_TRUE(*store->check(keys));
  EXPECT_TRUE(*store->remove("k"));
  EXPECT_FALSE(*store->check(keys));
}

TEST_F(StoreTest, WaitsForAKeyAndNamesTheOneThatDoesNotCome) {
  start();
  const auto one = near(0);
  const auto two = near(1);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(two->set("late", "x").ok());
  });
  EXPECT_EQ(*one->get("late", soon()), "x");
  later.join();
  const std::vector<std::string> keys = {"late", "never"};
  const Status status = one->wait(keys, base::Deadline::after(50ms));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), testing::EndsWith(": never"));
}

TEST_F(StoreTest, TellsAWatcherOnce) {
  start();
  const auto one = near(0);
  std::atomic<int> calls = 0;
  one->watch("news", [&](const std::string& value) { calls += value == "x" ? 1 : 100; });
  ASSERT_TRUE(one->set("after", "the watch").ok());  // so the server knows of it
  const auto two = near(1);
  ASSERT_TRUE(two->set("news", "x").ok());
  ASSERT_TRUE(two->set("news", "y").ok());
  const auto deadline = soon();
  while (calls == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(calls, 1);
}

TEST_F(StoreTest, BarrierNamesTheAbsentRank) {
  start();
  test::run_threads(3, [&](int rank) {
    const auto own = near(rank);
    EXPECT_TRUE(own->barrier("three", rank, 3, soon()).ok());
    if (rank != 1) {
      const Status status = own->barrier("two", rank, 3, base::Deadline::after(100ms));
      EXPECT_EQ(status.code(), Code::kTimeout);
      EXPECT_THAT(status.message(), HasSubstr("1"));
    }
  });
}

TEST_F(StoreTest, CountsExactlyThroughResets) {
  start();
  const auto store = far(0);
  constexpr int kCalls = 300;
  for (int i = 1; i <= kCalls; ++i) {
    if (i % 50 == 0) link_->reset();
    const auto sum = store->add("n", 1);
    ASSERT_TRUE(sum.ok()) << sum.status().message();
    ASSERT_EQ(*sum, i) << "a call took effect twice or never";
  }
  EXPECT_GT(link_->num_connections(), 2) << "no reset happened";
  EXPECT_EQ(num_lost_, 0);
}

TEST_F(StoreTest, AWaitOutlivesAReset) {
  start();
  const auto away = far(0);
  std::thread waiter([&] { EXPECT_EQ(*away->get("late", soon()), "x"); });
  std::this_thread::sleep_for(50ms);
  link_->reset();
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(near(1)->set("late", "x").ok());
  waiter.join();
  EXPECT_EQ(num_lost_, 0);
}

TEST_F(StoreTest, RidesOutAPartitionShorterThanTheSilence) {
  start(10s);
  const auto store = far(0);
  link_->hold(true);
  std::thread heals([&] {
    std::this_thread::sleep_for(1500ms);
    link_->hold(false);
  });
  const int64_t begin = base::now_ns();
  EXPECT_EQ(*store->add("n", 1), 1);
  EXPECT_GE(std::chrono::nanoseconds(base::now_ns() - begin), 1s) << "there was no partition";
  heals.join();
  EXPECT_EQ(num_lost_, 0);
}

TEST_F(StoreTest, APartitionForGoodIsNamedOnBothSides) {
  start(600ms);
  const auto away = far(0);
  const auto here = near(1);
  link_->hold(true);
  const auto told = here->get("lost/0", soon());
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_THAT(*told, HasSubstr("600 ms"));
  EXPECT_EQ(away->set("k", "v").code(), Code::kPeerLost);
  link_->hold(false);
  EXPECT_EQ(away->set("k", "v").code(), Code::kPeerLost) << "lost stays lost";
}

TEST_F(StoreTest, WorksOverASlowLink) {
  start();
  const auto store = far(0);
  link_->slow_down(40ms);
  const std::string value(200'000, 'v');
  const int64_t begin = base::now_ns();
  ASSERT_TRUE(store->set("big", value).ok());
  EXPECT_EQ(*store->get("big", soon()), value);
  // There and back the value is four pieces of at most 64 KiB, a pause between any two.
  EXPECT_GE(std::chrono::nanoseconds(base::now_ns() - begin), 6 * 40ms) << "the link was not slow";
}

TEST_F(StoreTest, ALostServerEndsEveryWaitWithinASecond) {
  start();
  std::atomic<int> told = 0;
  StoreOptions options;
  options.server = server_->place();
  options.world_size = 4;
  options.on_lost = [&](const Status& status) { told += status.code() == Code::kPeerLost; };
  const auto store = Store::connect(std::move(options)).or_throw();
  link_.reset();
  std::thread ends([&] {
    std::this_thread::sleep_for(50ms);
    server_.reset();
  });
  const auto begin = base::now_ns();
  EXPECT_EQ(store->get("never", soon()).status().code(), Code::kPeerLost);
  const auto took = std::chrono::nanoseconds(base::now_ns() - begin);
  ends.join();
  EXPECT_LT(took, 5s) << "usually 0.75 s";
  const auto deadline = soon();
  while (told == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace hanji::launch
