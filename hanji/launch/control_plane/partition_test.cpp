// Two hosts as network namespaces joined by a cable (veth): cut for 4 s, cut for good. What tensors do
// meanwhile, and on a slow link: tests/hosts_test.py.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/launch/launcher.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

bool shell(const std::string& line) {
  return ::system(("{ " + line + "; } >/dev/null 2>&1").c_str()) == 0;
}

class Namespaces : public testing::Test {
 protected:
  void SetUp() override {
    for (int node = 0; node < 2; ++node) {
      name_[node] = "hanji-" + std::to_string(::getpid()) + "-" + std::to_string(node);
      if (::geteuid() != 0 || !shell("ip netns add " + name_[node])) {
        GTEST_SKIP() << "network namespaces need root and the program ip";
      }
    }
    const bool joined =
        shell("ip link add v0 netns " + name_[0] + " type veth peer name v1 netns " + name_[1]) &&
        in(0, "ip address add 10.231.7.1/24 dev v0") &&
        in(1, "ip address add 10.231.7.2/24 dev v1") && in(0, "ip link set v0 up") &&
        in(1, "ip link set v1 up") && in(0, "ip link set lo up") && in(1, "ip link set lo up");
    if (!joined) GTEST_SKIP() << "no veth pair between network namespaces here";
  }
  void TearDown() override {
    for (const pid_t pid : children_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (const std::string& name : name_) shell("ip netns delete " + name);
  }

  bool in(int node, const std::string& line) const {
    return shell("ip netns exec " + name_[node] + " " + line);
  }
  /// The launcher of a node, in its namespace; writes "code cause" to `end.NODE`.
  void start(int node, const std::string& script, std::chrono::milliseconds silence) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children_.push_back(pid);
      return;
    }
    const int space = ::open(("/var/run/netns/" + name_[node]).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) ::_exit(98);
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.hosts = MultiHost{.num_nodes = 2,
                              .node = node,
                              .rendezvous = {"10.231.7.1", 29500},
                              .token = Token{},
                              .interface = node == 0 ? "v0" : "v1",
                              .join_time = 30s,
                              .silence = silence};
    options.environment = {"FOLDER=" + folder_.path().string()};
    options.segment.heap_bytes_per_rank = 1 << 20;
    options.segment.trace_events = 64;
    options.kill_grace = 1s;
    const auto outcome = launch(options);
    const std::string text = outcome.ok()
                                 ? std::to_string(outcome->exit_code) + " " + outcome->cause
                                 : "error " + outcome.status().message();
    const auto path = folder_.path() / ("end." + std::to_string(node));
    static_cast<void>(base::write_file_atomic(path, text));
    ::_exit(0);
  }
  bool wait_for(const std::string& name, std::chrono::seconds time) const {
    const auto deadline = base::Deadline::after(time);
    while (!std::filesystem::exists(folder_.path() / name)) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  bool both_up() const { return wait_for("up.0", 30s) && wait_for("up.1", 30s); }
  std::string end_of(int node) const {
    const std::string name = "end." + std::to_string(node);
    return wait_for(name, 60s) ? base::read_file(folder_.path() / name).or_throw() : "(no end)";
  }

  std::array<std::string, 2> name_;
  std::vector<pid_t> children_;
  test::TemporaryFolder folder_;
};

constexpr const char* kUntilTold =
    "touch $FOLDER/up.$RANK; while ! test -e $FOLDER/go; do sleep 0.05; done";

TEST_F(Namespaces, APartitionOfFourSecondsIsRiddenOut) {
  for (const int node : {0, 1}) start(node, kUntilTold, 15s);
  ASSERT_TRUE(both_up());
  ASSERT_TRUE(in(1, "ip link set v1 down"));
  std::this_thread::sleep_for(4s);
  ASSERT_TRUE(in(1, "ip link set v1 up"));
  std::ofstream(folder_.path() / "go");
  EXPECT_EQ(end_of(0), "0 ");
  EXPECT_EQ(end_of(1), "0 ");
}

TEST_F(Namespaces, APartitionForGoodIsNamedOnBothSides) {
  for (const int node : {0, 1}) start(node, kUntilTold, 2s);
  ASSERT_TRUE(both_up());
  ASSERT_TRUE(in(1, "ip link set v1 down"));
  const auto begin = base::now_ns();
  EXPECT_THAT(end_of(0), testing::AllOf(StartsWith("6 node 1 (host"), HasSubstr("10.231.7.2"),
                                        HasSubstr("is lost")));
  EXPECT_THAT(end_of(1), StartsWith("6 node 0 is lost"));
  EXPECT_LT(std::chrono::nanoseconds(base::now_ns() - begin), 20s) << "usually 4 s";
}

}  // namespace
}  // namespace hanji::launch
