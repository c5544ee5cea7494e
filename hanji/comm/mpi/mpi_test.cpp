// Run by mpirun with one or more ranks, each of them a whole run of these tests.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>
#include <string_view>
#include <thread>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/internal/desync_cases.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/mpi/group.h"
#include "hanji/comm/mpi/internal/call.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::refusal;
using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

Group make_group(Bits bits = Bits::kRun, std::chrono::nanoseconds deadline = 60s) {
  GroupOptions options;
  options.name = "by mpi";
  options.bits = bits;
  options.deadline = deadline;
  return mpi::make_group(nullptr, options);
}

TEST(MpiGroup, ServesEveryRoutineInOrder) {
  const Group group = make_group();
  EXPECT_EQ(group.engine(), "mpi");
  internal::check_routines(group);
}

TEST(MpiGroup, ServesEveryRoutineByItsOwn) { internal::check_routines(make_group(Bits::kFast)); }

TEST(MpiGroup, CompletesUnwaitedByAThread) {
  GroupOptions options;
  options.progress = Progress::kThread;
  const Group group = mpi::make_group(nullptr, options);
  at::Tensor tensor = at::full({1000}, group.rank());
  Work work = all_reduce(tensor, group);
  while (!work.done()) std::this_thread::yield();
  EXPECT_EQ(tensor[999].item<int>(), group.size() * (group.size() - 1) / 2);
}

TEST(MpiGroup, MovesWhatIsLongerThanAnEagerMessage) {
  for (const Bits bits : {Bits::kRun, Bits::kFast}) {
    const Group group = make_group(bits);
    at::Tensor tensor = internal::numbers(1 << 20, group.rank());
    all_reduce(tensor, group).wait();
    const int n = group.size();
    EXPECT_TRUE(at::equal(tensor, internal::numbers(1 << 20, 0) * n + n * (n - 1) / 2));
  }
}

TEST(MpiGroup, MinAndMaxKeepANumberThatIsNone) {
  const Group group = make_group(Bits::kFast);
  for (const c10::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const double mine = group.rank() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
      at::Tensor tensor = at::full({5}, mine, type);
      all_reduce(tensor, group, {.op = op}).wait();
      EXPECT_TRUE(tensor.isnan().all().item<bool>()) << type;
    }
  }
}

TEST(MpiGroup, AdoptsACommunicatorAndLeavesItAlone) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm backwards = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &backwards);
  {
    const Group group = mpi::make_group(&backwards);
    EXPECT_EQ(group.rank(), size - 1 - rank);
    at::Tensor all = at::zeros({size}, at::kLong);
    all_gather(all, at::full({1}, rank, at::kLong), group).wait();
    EXPECT_EQ(all[0].item<int64_t>(), size - 1);
  }
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, backwards);
  EXPECT_EQ(sum, size);
  MPI_Comm_free(&backwards);
}

TEST(MpiGroup, RefusesWhatIsNoGroupOfRanks) {
  MPI_Comm none = MPI_COMM_NULL;
  EXPECT_THAT(refusal([&] { mpi::make_group(&none); }),
              HasSubstr("invalid_argument: MPI_COMM_NULL"));
  int size = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (size == 1) return;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 5, &both);
  EXPECT_THAT(refusal([&] { mpi::make_group(&both); }), HasSubstr("MPI_Intercomm_merge"));
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

TEST(MpiGroup, RefusesMoreElementsThanMpiCounts) {
  const Group group = make_group();
  const int64_t count = int64_t{1} << 31;
  // Never touched: addresses alone.
  auto* const here = reinterpret_cast<void*>(uintptr_t{1} << 40);
  auto* const there = reinterpret_cast<void*>(uintptr_t{1} << 45);
  const at::Tensor input = at::from_blob(here, {count}, at::kByte);
  at::Tensor output = at::from_blob(there, {count * group.size()}, at::kByte);
  EXPECT_THAT(
      refusal([&] { all_gather(output, input, group).wait(); }),
      AllOf(HasSubstr("unsupported: "), HasSubstr("split the tensor"), HasSubstr("mpi_test.cpp:")));
}

TEST(MpiGroup, ErrorsOfMpiKeepTheirWordsAndGetACode) {
  EXPECT_THAT(refusal([] { mpi::check(MPI_ERR_TRUNCATE, "MPI_Testall"); }),
              AllOf(HasSubstr("mismatch: MPI_Testall: "), HasSubstr("truncated")));
  EXPECT_THAT(refusal([] { mpi::check(MPI_ERR_COMM, "MPI_Isend"); }),
              HasSubstr("invalid_argument: MPI_Isend: "));
  mpi::check(MPI_SUCCESS, "MPI_Isend");
}

TEST(MpiGroup, AMismatchIsNamedOnEveryRank) {
  const Group group = make_group();
  if (group.size() == 1) return;
  at::Tensor tensor = at::ones({group.rank() == 1 ? 5 : 4});
  EXPECT_THAT(refusal([&] { all_reduce(tensor, group, {.label = "wte"}).wait(); }),
              AllOf(HasSubstr("mismatch: "), HasSubstr("rank 1 called all_reduce(count 5"),
                    HasSubstr("rank 0 called all_reduce(count 4"), HasSubstr("mpi_test.cpp:"),
                    HasSubstr("wte")));
  EXPECT_THAT(refusal([&] { barrier(group); }), HasSubstr("mismatch: "));
}

internal::DesyncEngine desync_engine() {
  return {"mpi", [](const auto& body, const auto& change) {
            GroupOptions options;
            options.name = "by mpi";
            options.deadline = 60s;
            int rank = 0;
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            change(options, rank);
            body(mpi::make_group(nullptr, options));
          }};
}

class MpiDesync : public testing::TestWithParam<internal::DesyncRoutine> {
 protected:
  void SetUp() override {
    if (make_group().size() != internal::kDesyncRanks) GTEST_SKIP() << "for three ranks";
  }
};

TEST_P(MpiDesync, IsNamedOnEveryRank) {
  internal::check_disagreements(desync_engine(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, MpiDesync, testing::ValuesIn(internal::desync_routines()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MpiDesyncOf, WaysMessagesAndSubgroupsIsNamedOnEveryRank) {
  if (make_group().size() != internal::kDesyncRanks) GTEST_SKIP() << "for three ranks";
  internal::check_other_ways(desync_engine());
  internal::check_messages(desync_engine());
  internal::check_subgroups(desync_engine());
}

TEST(MpiGroup, DividesIntoGroupsThatWorkAtOnce) {
  const Group group = make_group();
  std::vector<int> members;
  for (int rank = group.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == group.rank() % 2) members.push_back(rank);
  }
  const Group part = group.subgroup(members, "part");
  at::Tensor inside = at::full({3}, group.rank());
  at::Tensor everywhere = at::full({3}, group.rank());
  Work all = all_reduce(everywhere, group);
  all_reduce(inside, part).wait();
  all.wait();
  int sum = 0;
  for (const int member : members) sum += member;
  EXPECT_EQ(inside[0].item<int>(), sum);
  EXPECT_EQ(everywhere[0].item<int>(), group.size() * (group.size() - 1) / 2);
  internal::check_routines(part);
}

TEST(MpiGroup, MeetsAgainOnTheRanksOfAGroup) {
  const Group meet = make_group();
  std::vector<int> backwards(meet.size());
  for (int rank = 0; rank < meet.size(); ++rank) backwards[rank] = meet.size() - 1 - rank;
  const Group turned = meet.subgroup(backwards, "turned");
  const Group again = mpi::make_group(turned);
  EXPECT_EQ(again.rank(), turned.rank());
  at::Tensor tensor = at::full({3}, again.rank());
  all_reduce(tensor, again, {.op = ReduceOp::kMax}).wait();
  EXPECT_EQ(tensor[0].item<int>(), meet.size() - 1);
}

TEST(MpiJoin, JoinsHostsIntoOneGroup) {
  int size = 0;
  int rank = 0;
  const Group first = make_group();  // it initialises MPI
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  EXPECT_THAT(refusal([&] { mpi::make_join(rank + 1); }),
              AllOf(HasSubstr("unsupported: "), HasSubstr("of MPI_COMM_WORLD")));
  if (size == 1) return;
  hierarchical::Hosts hosts{{}, rank};  // each rank is alone on its host
  for (int host = 0; host < size; ++host) hosts.host_of.push_back(host);
  GroupOptions options;
  options.deadline = 60s;
  const Group group =
      hierarchical::make_group(Group::alone(options), hosts, mpi::make_join(rank), options);
  EXPECT_EQ(group.engine(), "shm + mpi");
  internal::check_routines(group);
  const Group part = group.subgroup(rank < 2 ? std::vector{1, 0} : std::vector{2}, "part");
  at::Tensor tensor = at::full({5}, rank);
  all_reduce(tensor, part).wait();
  EXPECT_EQ(tensor[4].item<int>(), rank < 2 ? 1 : 2);
}

// Run alone, by `hanji_mpi_test funneled`: MPI is started once per process.
TEST(MpiFunneled, OneThreadAloneMayCall) {
  const Group group = make_group();
  at::Tensor tensor = at::ones({3});
  all_reduce(tensor, group).wait();
  EXPECT_EQ(tensor[0].item<int>(), group.size());
  std::thread([&] {
    EXPECT_THAT(refusal([&] { (void)all_reduce(tensor, group); }),
                HasSubstr("unsupported: group by mpi: MPI was initialised for one thread only"));
  }).join();
  GroupOptions options;
  options.progress = Progress::kThread;
  EXPECT_THAT(refusal([&] { mpi::make_group(nullptr, options); }),
              HasSubstr("needs MPI_THREAD_MULTIPLE"));
}

// From here on: MPI keeps what never came.
TEST(MpiGroupLast, CallsOfTwoGroupsEndAtTheDeadline) {
  const Group whole = make_group();
  if (whole.size() == internal::kDesyncRanks) internal::check_crossed_groups(desync_engine());
  barrier(whole);
}

TEST(MpiGroupLast, ACallThatMissesItsDeadlineNamesWhoIsAbsent) {
  const Group late = make_group(Bits::kRun, 300ms);
  const Group whole = make_group();
  const int absent = late.size() - 1;
  if (late.size() > 1 && late.rank() != absent) {
    at::Tensor tensor = at::ones({4});
    EXPECT_THAT(
        refusal([&] { all_reduce(tensor, late).wait(); }),
        AllOf(HasSubstr("timeout: "), HasSubstr("no call came within 0.3 s"),
              HasSubstr("absent ranks: " + std::to_string(absent)), HasSubstr("mpi_test.cpp:")));
  }
  barrier(whole);
}

}  // namespace
}  // namespace hanji::comm

int main(int argc, char** argv) {
  const bool funneled = argc > 1 && std::string_view(argv[1]) == "funneled";
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
  testing::InitGoogleTest(&argc, argv);
  testing::GTEST_FLAG(filter) = funneled ? "MpiFunneled.*" : "-MpiFunneled.*";
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
