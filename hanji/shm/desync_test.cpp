// Every way of not doing the same, in every routine and every way of running it: all ranks name
// the one that strays and both call sites before a byte is used.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"
#include "hanji/shm/call_site.h"
#include "hanji/test/routine_forms.h"
#include "hanji/test/run_group.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using schedule::ReduceOp;
using schedule::Routine;
using schedule::StepList;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kStray = 2;       // Who does something else.
constexpr int64_t kRoom = 400;  // Elements that a rank gives and gets at most: 100 per part.
constexpr int kParts = 3;

/// A rank's buffers, which nothing may change once somebody strays.
class Buffers {
 public:
  explicit Buffers(Member& member)
      : input_(member.allocate<float>(kParts * kRoom)),
        output_(member.allocate<float>(kParts * kRoom)) {
    std::fill_n(input_, kParts * kRoom, 1.0f + static_cast<float>(member.rank));
    std::fill_n(output_, kParts * kRoom, -1.0f);
    remember();
  }
  void give_to(Call& call) const {
    call.input = input_;
    // A root may copy its own input to its own output before it meets the others.
    call.output = call.routine == Routine::kBroadcast ? input_ : output_;
    call.input_stride = kRoom;
    call.num_parts = kParts;
  }
  void remember() {
    before_.assign(input_, input_ + kParts * kRoom);
    before_.insert(before_.end(), output_, output_ + kParts * kRoom);
  }
  bool unchanged() const {
    return std::equal(input_, input_ + kParts * kRoom, before_.begin()) &&
           std::equal(output_, output_ + kParts * kRoom, before_.begin() + kParts * kRoom);
  }

 private:
  float* input_;
  float* output_;
  std::vector<float> before_;
};

class Desync : public testing::TestWithParam<test::RoutineForm> {
 protected:
  Call due() const { return call_of(share(GetParam().list(GetParam().count, 0))); }
  Call tagged(uint64_t tag) const {
    Call call = due();
    call.tag = tag;
    return call;
  }

  /// Ranks make the calls of `due`, the stray one those of `done`; at `operation` they part.
  void expect_named(const std::vector<Call>& due, const std::vector<Call>& done, int operation,
                    const std::string& says, int stray = kStray) const {
    run_group(kRanks, [&](Member& member) {
      Buffers buffers(member);
      const bool strays = member.rank == stray;
      Status status;
      for (Call call : strays ? done : due) {
        buffers.give_to(call);
        call.call_site = member.segment->call_sites().intern(
            member.rank, strays ? "wrong.cpp:7" : "right.cpp:3");
        status = member.run(call);
        if (!status.ok()) break;
        buffers.remember();
      }
      EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr(says),
                        HasSubstr("operation " + std::to_string(operation) + " of group 0"),
                        HasSubstr("rank 0 calls"), HasSubstr("right.cpp:3"),
                        HasSubstr(fmt::format("rank {} calls", stray)), HasSubstr("wrong.cpp:7")));
      EXPECT_EQ(status.message().find(fmt::format("rank {} calls", kRanks - stray)),
                std::string::npos);
      EXPECT_TRUE(buffers.unchanged());
      EXPECT_EQ(member.run(call_of(share(schedule::barrier(kRanks)))).code(), Code::kMismatch)
          << "the group stays poisoned";
    });
  }
};

TEST_P(Desync, OfARankBetweenOthersIsNamed) {
  expect_named({tagged(1)}, {tagged(2)}, 1, "the tag is 2 there and 1 here", 1);
}

TEST_P(Desync, OfRoutineIsNamed) {
  const Call call = due();
  const Call other = call.routine == Routine::kBarrier
                         ? call_of(share(schedule::all_reduce_flat(kRanks, 2)))
                         : call_of(share(schedule::barrier(kRanks)));
  expect_named({call}, {other}, 1, "the routine is ");
}

TEST_P(Desync, OfDTypeIsNamed) {
  if (due().routine == Routine::kBarrier) return;
  for (const DType dtype : {DType::kInt32, DType::kFloat64, DType::kFloat8E4M3FN}) {
    Call other = due();
    other.dtype = dtype;
    if (size_of(dtype) > 4 && GetParam().count == 2) continue;  // no room in the line
    expect_named({due()}, {other}, 1,
                 "the dtype is " + std::string(name_of(dtype)) + " there and float32 here");
  }
}

TEST_P(Desync, OfCountIsNamed) {
  if (due().routine == Routine::kBarrier) return;
  for (const int64_t more : {1, -1}) {
    const int64_t count = GetParam().count + more;
    expect_named({due()}, {call_of(share(GetParam().list(count, 0)))}, 1,
                 "the count is " + std::to_string(count) + " there and " +
                     std::to_string(GetParam().count) + " here");
  }
}

// As many elements in all, shared out differently: only the fingerprint of the lists can tell.
TEST_P(Desync, OfSharesIsNamed) {
  StepList other = GetParam().list(GetParam().count, 0);
  if (other.counts.empty()) return;
  std::vector<int64_t> counts = other.counts;
  std::swap(counts[0], counts[1]);
  if (other.routine == Routine::kAllGather) other = schedule::all_gather_direct(counts);
  if (other.routine == Routine::kReduceScatter) other = schedule::reduce_scatter_direct(counts);
  if (other.routine == Routine::kGather) other = schedule::gather_direct(counts, 0);
  if (other.routine == Routine::kScatter) other = schedule::scatter_direct(counts, 0);
  if (other.routine == Routine::kAllToAll) other = schedule::all_to_all_direct(kRanks, counts);
  const bool in_line = GetParam().count < 5;  // there the count travels in another place
  expect_named({due()}, {call_of(share(other))}, 1,
               in_line ? "differ" : "the counts per rank or the step lists differ");
}

TEST_P(Desync, OfUnevenSharesFromEvenOnesIsNamed) {
  if (GetParam().count != 90 || GetParam().list(90, 0).counts.empty()) return;
  if (due().routine != Routine::kAllGather) return;
  expect_named({due()}, {call_of(share(schedule::all_gather_direct(kRanks, 90)))}, 1,
               "the counts per rank are even there and uneven here");
}

TEST_P(Desync, OfRootIsNamed) {
  if (!has_root(due().routine)) return;
  for (const int root : {1, 2}) {
    expect_named({due()}, {call_of(share(GetParam().list(GetParam().count, root)))}, 1,
                 "the root is " + std::to_string(root) + " there and 0 here");
  }
}

TEST_P(Desync, OfReduceOpIsNamed) {
  if (!reduces(due().routine)) return;
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kProd, ReduceOp::kPremulSum}) {
    Call other = due();
    if (other.routine == Routine::kTreeReduce && op == ReduceOp::kPremulSum) continue;  // refused
    other.op = op;
    expect_named({due()}, {other}, 1,
                 "the op is " + std::string(name_of(op)) + " there and sum here");
  }
}

TEST_P(Desync, OfTheStepListIsNamed) {
  StepList changed = *due().steps;
  for (auto& steps : changed.per_rank) steps.emplace_back();  // one more sync
  expect_named({due()}, {call_of(share(changed))}, 1, "the step lists differ");
}

TEST_P(Desync, OfOrderIsNamed) {
  expect_named({tagged(1), tagged(2), tagged(3)}, {tagged(1), tagged(3), tagged(2)}, 2,
               "the tag is 3 there and 2 here");
}

TEST_P(Desync, ASkippedCallIsNamed) {
  expect_named({tagged(1), tagged(2), tagged(3)}, {tagged(1), tagged(3)}, 2,
               "the tag is 3 there and 2 here");
}

TEST_P(Desync, ARepeatedCallIsNamed) {
  expect_named({tagged(1), tagged(2), tagged(3)}, {tagged(1), tagged(1), tagged(2), tagged(3)}, 2,
               "the tag is 1 there and 2 here");
}

// Nobody meets the stray rank: the deadline names it, and where it waits instead.
TEST_P(Desync, OfGroupIsNamed) {
  if (GetParam().list(GetParam().count, 0).counts.size() > 0) return;  // as the even ones
  const auto segment = test::make_segment(kRanks);
  test::run_threads(kRanks, [&](int rank) {
    EngineOptions options;
    options.deadline = rank == 0 ? 150ms : 10s;
    const int group = rank == kStray ? 7 : 0;
    const auto engine =
        Engine::create(segment, group, test::first_ranks(kRanks), rank, options).or_throw();
    Heap heap(segment, rank);
    Member member{segment, rank, *engine, heap};
    Buffers buffers(member);
    Call call = due();
    buffers.give_to(call);
    const Status status = member.run(call);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("operation 1 of group 0"), HasSubstr("absent rank 2"),
                      HasSubstr("waits in operation 1 of group 7")));
    EXPECT_TRUE(buffers.unchanged());
    if (rank == 0) segment->abort(rank, status.code(), status.message());
  });
}

TEST(DesyncOnAMesh, RanksAreNamedWithTheirCoordinates) {
  run_group(2, [](Member& member) {
    trace::Recorder::format(member.segment->trace_memory(member.rank), member.rank, 2)
        .set_coordinates(member.rank == 0 ? "dp=1,tp=0" : "dp=1,tp=1");
    Call call = call_of(share(schedule::barrier(2)));
    call.tag = static_cast<uint64_t>(member.rank);
    EXPECT_THAT(member.run(call).message(), AllOf(HasSubstr("rank 0 (dp=1,tp=0) calls barrier"),
                                                  HasSubstr("rank 1 (dp=1,tp=1) calls barrier")));
  });
}

// Calls that look alike: only their number differs, and the rank that made fewer leaves.
TEST_P(Desync, ASkippedCallAmongEqualOnesIsNamedWhenTheRankLeaves) {
  run_group(kRanks, [&](Member& member) {
    Buffers buffers(member);
    Status status;
    for (int k = 0; k < (member.rank == kStray ? 3 : 4) && status.ok(); ++k) {
      Call call = due();
      buffers.give_to(call);
      status = member.run(call);
      if (status.ok()) buffers.remember();
    }
    if (member.rank == kStray) {
      EXPECT_TRUE(status.ok());
      member.segment->leave(kStray);
      return;
    }
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("operation 4 of group 0"), HasSubstr("rank 2 left the job"),
                      HasSubstr("its last call here was operation 3")));
    EXPECT_TRUE(buffers.unchanged());
  });
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, Desync, testing::ValuesIn(test::routine_forms(kRanks)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hanji::shm
