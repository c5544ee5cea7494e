// What a Work tells and does beside waiting: deadlines, cancelling, who has come.
#include "hanji/comm/work.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::numbers;
using internal::refusal;
using internal::run_ranks;
using schedule::ReduceOp;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CallDeadline, NamesTheAbsentRankInTime) {
  run_ranks(3, [](const Group& group) {
    if (group.rank() == 2) return;
    at::Tensor tensor = at::ones({1000});
    EXPECT_THAT(refusal([&] { all_reduce(tensor, group, {.deadline = 100ms}).wait(); }),
                AllOf(HasSubstr("timeout: "), HasSubstr("absent rank 2")));
  });
}

TEST(CallDeadline, HoldsForMessages) {
  run_ranks(2, [](const Group& group) {
    if (group.rank() == 1) return;
    EXPECT_THAT(refusal([&] { send(at::ones({3}), 1, group, {.deadline = 100ms}).wait(); }),
                AllOf(HasSubstr("timeout: "), HasSubstr("absent rank 1")));
  });
}

TEST(Cancel, EndsTheGroupOnAllRanksAndNamesWhoDidIt) {
  for (const Progress progress : {Progress::kCaller, Progress::kThread}) {
    GroupOptions options;
    options.progress = progress;
    std::atomic<int> ended = 0;
    run_ranks(
        3,
        [&](const Group& group) {
          at::Tensor tensor = at::ones({1000});
          const auto call = [&] { all_reduce(tensor, group).wait(); };
          std::string error;
          if (group.rank() == 2) {  // computes until the others have been told
            while (ended.load() < 2) std::this_thread::sleep_for(1ms);
            error = refusal(call);
          } else if (group.rank() == 1) {
            Work work = all_reduce(tensor, group);
            EXPECT_TRUE(work.cancel());
            error = refusal([&] { work.wait(); });
            ++ended;
          } else {
            error = refusal(call);
            ++ended;
          }
          EXPECT_THAT(error, AllOf(HasSubstr("cancelled: "), HasSubstr("rank 1 cancelled it")));
          EXPECT_THAT(refusal(call), HasSubstr("cancelled: "));
        },
        options);
  }
}

TEST(Cancel, WorksWhileAnotherThreadWaits) {
  run_ranks(2, [](const Group& group) {
    if (group.rank() == 1) return;
    at::Tensor tensor = at::ones({1000});
    Work work = all_reduce(tensor, group);
    std::jthread other([&] {
      std::this_thread::sleep_for(50ms);
      EXPECT_TRUE(work.cancel());
    });
    EXPECT_THAT(refusal([&] { work.wait(); }), HasSubstr("rank 0 cancelled it"));
  });
}

TEST(Cancel, OfACompleteCallIsTooLate) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({4});
    Work work = all_reduce(tensor, group);
    work.wait();
    EXPECT_FALSE(work.cancel());
    barrier(group);
  });
}

TEST(ArrivedAndDelivered, NameRanksOfTheGroup) {
  std::atomic<bool> seen = false;
  run_ranks(3, [&](const Group& world) {
    const Group group = world.subgroup({2, 1, 0}, "turned");
    at::Tensor tensor = at::ones({4});
    if (group.rank() == 2) {
      while (!seen.load()) std::this_thread::sleep_for(1ms);
    }
    Work work = all_reduce(tensor, group);
    if (group.rank() == 0) {
      while (work.arrived() != std::vector{0, 1}) std::this_thread::sleep_for(1ms);
      EXPECT_THAT(work.delivered(), ElementsAre());
      seen = true;
    }
    work.wait();
    barrier(group);
    EXPECT_THAT(work.arrived(), ElementsAre(0, 1, 2));
    EXPECT_THAT(work.delivered(), ElementsAre(0, 1, 2));
  });
}

TEST(ArrivedAndDelivered, OfAMessageNameItsEnds) {
  std::atomic<bool> seen = false;
  run_ranks(3, [&](const Group& world) {
    const Group group = world.subgroup({1, 2, 0}, "turned");
    if (group.rank() == 0) return;
    at::Tensor tensor = at::ones({4});
    if (group.rank() == 2) {
      Work sent = send(tensor, 1, group);
      while (sent.arrived() != std::vector{2}) std::this_thread::sleep_for(1ms);
      seen = true;
      sent.wait();
      // "Has it received it?"
      while (sent.delivered() != std::vector{1, 2}) std::this_thread::sleep_for(1ms);
    } else {
      while (!seen.load()) std::this_thread::sleep_for(1ms);
      recv(tensor, 2, group).wait();
    }
  });
}

TEST(OutOfPlace, AllReduceAndBroadcastKeepTheirInput) {
  internal::for_each_case(std::vector{1, 2, 3},
                          [](const Group& group, int64_t count, internal::Where where) {
                            const at::Tensor values = numbers(count, group.rank());
                            const at::Tensor input = place(values, where, group);
                            at::Tensor output = place(at::zeros({count}), where, group);
                            all_reduce(output, input, group).wait();
                            at::Tensor expected = values.clone();
                            all_reduce(expected, group).wait();
                            EXPECT_TRUE(at::equal(output, expected));
                            EXPECT_TRUE(at::equal(input, values));

                            const int root = group.size() - 1;
                            const at::Tensor given = group.rank() == root ? input : at::Tensor();
                            broadcast(output, given, root, group).wait();
                            EXPECT_TRUE(at::equal(output, numbers(count, root)));
                            EXPECT_TRUE(at::equal(input, values));
                          });
}

TEST(OutOfPlace, RefusesOverlapAndOtherSizes) {
  const Group group = Group::alone();
  at::Tensor wide = at::ones({8});
  at::Tensor left = wide.narrow(0, 0, 4);
  const at::Tensor middle = wide.narrow(0, 2, 4);
  EXPECT_THAT(refusal([&] { (void)all_reduce(left, middle, group); }), HasSubstr("overlap"));
  EXPECT_THAT(refusal([&] { (void)all_reduce(left, wide, group); }), HasSubstr("must have 8"));
  EXPECT_THAT(refusal([&] { (void)broadcast(left, at::Tensor(), 0, group); }),
              HasSubstr("undefined"));
}

TEST(PremultipliedSum, CountsEachRankByItsFactor) {
  internal::for_each_case(std::vector{1, 2, 3}, [](const Group& group, int64_t count,
                                                   internal::Where where) {
    for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      at::Tensor tensor = place(numbers(count, group.rank(), type), where, group);
      all_reduce(tensor, group, {.op = ReduceOp::kPremulSum, .factor = group.rank() + 0.5}).wait();
      at::Tensor expected = at::zeros({count}, at::kDouble);
      for (int rank = 0; rank < group.size(); ++rank) {
        expected += numbers(count, rank, at::kDouble) * (rank + 0.5);
      }
      EXPECT_TRUE(at::equal(tensor, expected.to(type))) << type;
    }
  });
}

TEST(PremultipliedSum, IsAnOpThatAllRanksMustAgreeOn) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({3});
    const auto op = group.rank() == 0 ? ReduceOp::kSum : ReduceOp::kPremulSum;
    EXPECT_THAT(refusal([&] { all_reduce(tensor, group, {.op = op, .factor = 2}).wait(); }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("premul_sum")));
  });
}

TEST(PremultipliedSum, IsOfFloatingTypes) {
  const Group group = Group::alone();
  at::Tensor tensor = at::ones({3}, at::kInt);
  EXPECT_THAT(refusal([&] { (void)all_reduce(tensor, group, {.op = ReduceOp::kPremulSum}); }),
              HasSubstr("unsupported: "));
}

// All 256 values of a rank's tensor, one of `other` on its peer, by torch's own conversions. Before 2.13 these make of
// what is above the largest of e4m3fn no number.
TEST(Float8, SumsAreThoseOfFloat32RoundedByTorch) {
  for (const c10::ScalarType type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    run_ranks(2, [type](const Group& group) {
      const at::Tensor values = at::arange(256, at::kInt).to(at::kByte).view(type);
      for (const int other : {0x00, 0x01, 0x38, 0x3c, 0x7b, 0x7e, 0x81, 0xc5}) {
        const at::Tensor others = at::full({256}, other, at::kByte).view(type);
        at::Tensor tensor = (group.rank() == 0 ? values : others).clone();
        all_reduce(tensor, group).wait();
        at::Tensor sums = values.to(at::kFloat) + others.to(at::kFloat);
        if (type == at::kFloat8_e4m3fn) sums.clamp_(-448, 448);
        const at::Tensor expected = sums.to(type);
        const at::Tensor is_nan = expected.to(at::kFloat).isnan();
        EXPECT_TRUE(at::equal(tensor.to(at::kFloat).isnan(), is_nan));
        const at::Tensor same = tensor.view(at::kByte).eq(expected.view(at::kByte));
        EXPECT_TRUE(same.logical_or(is_nan).all().item<bool>()) << type << " " << other;
      }
    });
  }
}

TEST(Bool, SumMeansOr) {
  run_ranks(3, [](const Group& group) {
    at::Tensor flags = at::arange(3).eq(group.rank()).logical_or(at::arange(3).eq(0));
    all_reduce(flags, group).wait();
    EXPECT_TRUE(flags.all().item<bool>());
    EXPECT_TRUE(flags.view(at::kByte).eq(1).all().item<bool>());
    at::Tensor product = at::arange(3).ne(group.rank());
    all_reduce(product, group, {.op = ReduceOp::kProd}).wait();
    EXPECT_FALSE(product.any().item<bool>());
  });
}

}  // namespace
}  // namespace hanji::comm
