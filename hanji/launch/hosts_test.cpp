// What hosts tell each other before and beside the ranks' own work.
#include "hanji/launch/hosts.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "hanji/launch/control_plane/server.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/node_list.h"
#include "hanji/launch/internal/verdict.h"
#include "hanji/test/run_threads.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using Table = std::map<std::string, std::string>;

Lookup lookup_in(Table table) {
  return [table = std::move(table)](base::Variable variable) -> std::optional<std::string> {
    const auto place = table.find(std::string(base::spec_of(variable).name));
    return place == table.end() ? std::nullopt : std::optional(place->second);
  };
}

TEST(Hosts, FindTheNodeOfEveryRank) {
  std::vector<Node> nodes(3);
  nodes[0].num_ranks = 2;
  nodes[1].num_ranks = 1;
  nodes[2].num_ranks = 3;
  EXPECT_EQ(number_ranks(nodes), 6);
  Hosts hosts;
  hosts.nodes = nodes;
  std::vector<int> found;
  for (int rank = 0; rank < 6; ++rank) found.push_back(hosts.node_of(rank));
  EXPECT_EQ(found, (std::vector{0, 0, 1, 2, 2, 2}));
}

TEST(HostsFile, IsReadBackAsItIsWritten) {
  HostsFile file;
  file.server = {"::1", 29500};
  file.token = *make_token();
  file.source = "10.0.0.2";
  file.silence = 7s;
  file.node = 1;
  file.nodes = {{"a", "10.0.0.1", 0, 2}, {"b", "10.0.0.2", 2, 4}};
  const auto read = parse_hosts_file(to_json(file));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->server, file.server);
  EXPECT_EQ(read->token, file.token);
  EXPECT_EQ(read->source, file.source);
  EXPECT_EQ(read->silence, file.silence);
  EXPECT_EQ(read->node, 1);
  EXPECT_EQ(read->nodes, file.nodes);
  for (const char* text : {"", "{}", "[1]", R"({"server":"a:1","nodes":[]})"}) {
    EXPECT_EQ(parse_hosts_file(text).status().code(), Code::kCorrupt) << text;
  }
}

TEST(Verdict, IsReadBackWhateverItsWords) {
  const Verdict verdict{2, 137, "rank 3 (host b) was killed\n\"quoted\""};
  EXPECT_EQ(*parse_verdict(to_json(verdict)), verdict);
  EXPECT_EQ(parse_verdict(to_json(Verdict{0, 1, "\xFF\xFE"}))->exit_code, 1);
  EXPECT_FALSE(parse_verdict(R"({"node":"x","exit_code":1,"text":""})").ok());
}

TEST(Announcement, TellsOfOtherHostsOnlyWhereThereAreSome) {
  Announcement told{.rank = 1, .size = 2, .segment = 5, .control = 6};
  told.world_size = 2;
  EXPECT_THAT(to_text(told), testing::Not(HasSubstr("hosts")));
  told.hosts = 9;
  told.first_rank = 4;
  told.world_size = 6;
  told.node = 2;
  told.num_nodes = 3;
  const auto read = parse_announcement(to_text(told));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->first_rank, 4);
  EXPECT_EQ(read->num_nodes, 3);
  const std::string start = "rank=1,size=2,segment=5,control=6,plan=-1,same_program=0,";
  for (const char* rest : {"hosts=9", "hosts=-1,first_rank=4,world_size=6,node=2,num_nodes=3",
                           "hosts=9,first_rank=5,world_size=6,node=2,num_nodes=3",
                           "hosts=9,first_rank=4,world_size=6,node=3,num_nodes=3"}) {
    EXPECT_FALSE(parse_announcement(start + rest).ok()) << rest;
  }
}

TEST(NodeList, FirstHostOfSlurmsNotation) {
  EXPECT_EQ(first_host("gpu[07-09,12],login"), "gpu07");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("rack[1,3]node[02-04]"), "rack1node02");
  EXPECT_EQ(first_host("single"), "single");
  EXPECT_EQ(first_host("broken[5"), "broken5");
  EXPECT_EQ(first_host(""), "");
}

TEST(RendezvousPlace, ComesFromWhereTheLauncherTells) {
  const Identity torchrun{.source = Source::kTorchrun, .world_size = 4, .local_size = 2};
  const Table master = {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(*rendezvous_of(torchrun, lookup_in(master)), (base::HostPort{"node7", 29501}));
  EXPECT_THAT(rendezvous_of(torchrun, lookup_in({})).status().message(),
              HasSubstr("HANJI_RENDEZVOUS"));
  const Identity srun{.source = Source::kSrun, .world_size = 4, .local_size = 2, .job_id = "j1"};
  const Table slurm = {{"SLURM_JOB_NODELIST", "n[1-9]"}, {"SLURM_STEP_NODELIST", "n[3-4]"}};
  EXPECT_EQ(rendezvous_of(srun, lookup_in(slurm))->host, "n3");
  const int port = rendezvous_of(srun, lookup_in(slurm))->port;
  EXPECT_TRUE(port >= 20'000 && port < 30'000) << port;
  const Identity mpirun{.source = Source::kMpirun, .world_size = 4, .local_size = 2};
  EXPECT_EQ(rendezvous_of(mpirun, lookup_in(master)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rendezvous_of(mpirun, lookup_in(slurm))->host, "n1")
      << "its daemons' step begins later";
  const Table told = {{"HANJI_RENDEZVOUS", "[::1]:7"}};
  EXPECT_EQ(*rendezvous_of(mpirun, lookup_in(told)), (base::HostPort{"::1", 7}));
}

/// Ranks as threads, as torchrun would have started them on two hosts of two.
class MeetHosts : public testing::Test {
 protected:
  MeetHosts() {
    const auto probe = base::listen_tcp({"127.0.0.1", 0}).or_throw();
    rendezvous_ = base::local_place(probe.get()).or_throw();
    const auto path = folder_.path() / "token";
    std::ofstream(path) << to_text(*make_token());
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    table_ = {{"HANJI_TOKEN_FILE", path.string()},
              {"HANJI_RENDEZVOUS", base::to_text(rendezvous_)}};
  }
  static Identity rank(int rank) {
    return {.source = Source::kTorchrun,
            .rank = rank,
            .world_size = 4,
            .local_rank = rank % 2,
            .local_size = 2};
  }
  test::TemporaryFolder folder_;
  base::HostPort rendezvous_;
  Table table_;
};

TEST_F(MeetHosts, GivesEveryRankItsPlaceAndTheStore) {
  test::run_threads(4, [&](int index) {
    const auto hosts =
        meet_hosts(rank(index), base::Deadline::after(30s), {}, lookup_in(table_)).or_throw();
    EXPECT_EQ(hosts.num_nodes(), 2);
    EXPECT_EQ(hosts.node, index / 2);
    EXPECT_EQ(hosts.here().first_rank, index / 2 * 2);
    EXPECT_EQ(hosts.here().address, "127.0.0.1");
    ASSERT_TRUE(hosts.store->add("sum", index).ok());
    ASSERT_TRUE(hosts.store->barrier("b", index, 4, base::Deadline::after(30s)).ok());
    EXPECT_EQ(*hosts.store->get("sum", base::Deadline::after(30s)), "6");
  });
}

TEST_F(MeetHosts, TellsAllWhichRankFailed) {
  std::atomic<int> told = 0;
  test::run_threads(4, [&](int index) {
    std::atomic<bool> heard = false;
    const auto on_lost = [&](const Status& why) {
      told += why.message().find("rank 3 (node 1") != std::string::npos;
      heard = true;
    };
    const auto hosts =
        meet_hosts(rank(index), base::Deadline::after(30s), on_lost, lookup_in(table_)).or_throw();
    if (index == 3) notify_hosts(hosts, "rank 3 (node 1, host b) failed: page 7");
    const auto deadline = base::Deadline::after(20s);
    while (!heard && !deadline.passed()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(heard);
    static_cast<void>(hosts.store->barrier("end", index, 4, base::Deadline::after(20s)));
  });
  EXPECT_EQ(told, 4);
}

TEST_F(MeetHosts, RefusesWithoutATokenAndTellsTheWayOut) {
  table_.erase("HANJI_TOKEN_FILE");
  const auto hosts = meet_hosts(rank(1), base::Deadline::after(1s), {}, lookup_in(table_));
  EXPECT_EQ(hosts.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(hosts.status().message(), HasSubstr("HANJI_TOKEN_FILE"));
}

TEST_F(MeetHosts, RefusesRanksThatAreNotNumberedHostByHost) {
  test::run_threads(4, [&](int index) {
    Identity identity = rank(index);
    identity.local_rank = index / 2;  // Host A has 0 and 2, host B 1 and 3.
    const auto hosts = meet_hosts(identity, base::Deadline::after(30s), {}, lookup_in(table_));
    EXPECT_EQ(hosts.status().code(), Code::kUnsupported);
    EXPECT_THAT(hosts.status().message(), HasSubstr("--map-by slot"));
  });
}

TEST_F(MeetHosts, NamesTheRankThatDoesNotCome) {
  test::run_threads(3, [&](int index) {
    const auto hosts = meet_hosts(rank(index), base::Deadline::after(1s), {}, lookup_in(table_));
    EXPECT_EQ(hosts.status().code(), Code::kTimeout);
    EXPECT_THAT(hosts.status().message(), testing::EndsWith(": 3"));
  });
}

TEST_F(MeetHosts, ConnectsNothingOnOneHost) {
  const Identity alone{
      .source = Source::kTorchrun, .rank = 1, .world_size = 2, .local_rank = 1, .local_size = 2};
  const auto hosts = meet_hosts(alone, base::Deadline::after(1s), {}, lookup_in({})).or_throw();
  EXPECT_EQ(hosts.store, nullptr);
  EXPECT_EQ(hosts.node_of(1), 0);
}

}  // namespace
}  // namespace hanji::launch
