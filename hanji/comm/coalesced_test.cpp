#include "hanji/comm/coalesced.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"

namespace hanji::comm {
namespace {

using internal::numbers;
using internal::refusal;
using internal::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

TEST(Coalesced, EveryCallHasTheResultThatItHasAlone) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](const Group& group) {
      std::vector<at::Tensor> together, alone;
      for (const int64_t count : {3, 0, 1, 700, 5, 100000}) {
        const at::Tensor values = numbers(count, group.rank()) * 0.37f;
        together.push_back(values.clone());
        alone.push_back(values.clone());
      }
      at::Tensor doubles = numbers(4, group.rank(), at::kDouble);
      at::Tensor from_last = numbers(9, group.rank());
      const int last = group.size() - 1;
      coalesce(group, [&] {
        for (at::Tensor& tensor : together) (void)all_reduce(tensor, group);
        (void)all_reduce(doubles, group, {.op = schedule::ReduceOp::kMax});
        (void)broadcast(from_last, last, group);
      }).wait();
      for (size_t i = 0; i < alone.size(); ++i) {
        all_reduce(alone[i], group).wait();
        EXPECT_TRUE(at::equal(together[i], alone[i])) << i;
      }
      EXPECT_TRUE(at::equal(doubles, numbers(4, last, at::kDouble)));
      EXPECT_TRUE(at::equal(from_last, numbers(9, last)));
    });
  }
}

TEST(Coalesced, SmallSumsInARowAreOneCall) {
  run_ranks(2, [](const Group& group) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 10; ++i) tensors.push_back(at::ones({2, 3}));
    coalesce(group, [&] {
      for (at::Tensor& tensor : tensors) (void)all_reduce(tensor, group);
    }).wait();
    EXPECT_EQ(group.stats().operations, 1);
    for (const at::Tensor& tensor : tensors) EXPECT_TRUE(at::equal(tensor, at::full({2, 3}, 2.0f)));
  });
}

TEST(Coalesced, ASumOfASumIsNotFusedWithIt) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({4});
    at::Tensor output = at::zeros({4});
    coalesce(group, [&] {
      (void)all_reduce(tensor, group);
      (void)all_reduce(output, tensor, group);
      (void)all_reduce(tensor, group);
    }).wait();
    EXPECT_EQ(tensor[0].item<float>(), 4);
    EXPECT_EQ(output[0].item<float>(), 4);
  });
}

TEST(Coalesced, TwoRanksSendToEachOther) {
  run_ranks(2, [](const Group& group) {
    const int peer = 1 - group.rank();
    for (const int64_t count : {int64_t{3}, int64_t{2} << 20}) {
      const at::Tensor mine = numbers(count, group.rank());
      at::Tensor theirs = at::zeros({count});
      at::Tensor sum = at::ones({1});
      Work work = coalesce(group, [&] {
        (void)send(mine, peer, group);
        (void)all_reduce(sum, group);
        (void)recv(theirs, peer, group);
      });
      work.wait();
      EXPECT_TRUE(at::equal(theirs, numbers(count, peer)));
      EXPECT_EQ(sum.item<float>(), 2);
      barrier(group);  // both have their results now
      EXPECT_THAT(work.delivered(), testing::ElementsAre(0, 1));
    }
  });
}

TEST(Coalesced, TheWorkOfACallEndsWithTheUnit) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({4});
    Coalesced batch(group);
    Work inner = all_reduce(tensor, group);
    EXPECT_THAT(refusal([&] { inner.wait(); }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("coalesced_test.cpp:"),
                      HasSubstr("not submitted")));
    EXPECT_THAT(refusal([&] { Coalesced second(group); }), HasSubstr("is open already"));
    std::atomic<int> told = 0;
    Work work = batch.submit();
    work.then([&](const Status& status) { told += status.ok() ? 1 : 100; });
    inner.wait();
    work.wait();
    EXPECT_TRUE(work.done());
    EXPECT_EQ(told, 1);
    EXPECT_EQ(tensor[0].item<float>(), 2);
    EXPECT_THAT(refusal([&] { (void)batch.submit(); }), HasSubstr("has been submitted"));
  });
}

TEST(Coalesced, AnUnsubmittedUnitIsDropped) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({4});
    {
      const Coalesced batch(group);
      (void)all_reduce(tensor, group);
    }
    barrier(group);
    EXPECT_EQ(group.stats().operations, 1);
    EXPECT_EQ(tensor[0].item<float>(), 1);
  });
}

TEST(Coalesced, RanksThatFusedOtherCallsAreToldSo) {
  run_ranks(2, [](const Group& group) {
    // As many elements and calls on both ranks, in other pieces.
    at::Tensor a = at::ones({group.rank() == 0 ? 3 : 5});
    at::Tensor b = at::ones({group.rank() == 0 ? 5 : 3});
    EXPECT_THAT(refusal([&] {
                  coalesce(group, [&] {
                    (void)all_reduce(a, group);
                    (void)all_reduce(b, group);
                  }).wait();
                }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("2 calls as one"), HasSubstr("the tag")));
    EXPECT_EQ(a[0].item<float>(), 1);
  });
}

}  // namespace
}  // namespace hanji::comm
