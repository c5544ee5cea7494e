#include "hanji/launch/control_plane/table.h"

#include <gmock/gmock.h>

namespace hanji::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// One session that asks; tests of several name them.
class TableTest : public testing::Test {
 protected:
  using Replies = std::vector<Table::Reply>;

  Replies ask(Operation operation, std::vector<std::string> texts, int64_t number = 0,
              uint64_t session = 1) {
    Request request{.operation = operation, .number = number, .texts = std::move(texts)};
    return table_.handle({session, ++last_id_}, request);
  }
  /// The one reply's text, after its code if that is not ok.
  std::string text(const Replies& replies) {
    if (replies.size() != 1) return "(" + std::to_string(replies.size()) + " replies)";
    const Table::Reply& reply = replies[0];
    return (reply.code == Code::kOk ? "" : std::string(base::name_of(reply.code)) + ": ") +
           reply.text;
  }
  static int64_t place(int64_t index, int64_t size) { return size << 32 | index; }

  Table table_;
  uint64_t last_id_ = 0;
};

TEST_F(TableTest, SetsGetsRemovesAndCounts) {
  EXPECT_EQ(text(ask(Operation::kSet, {"k", "v"})), "");
  EXPECT_EQ(text(ask(Operation::kGet, {"k"})), "v");
  EXPECT_EQ(text(ask(Operation::kCount, {})), "1");
  EXPECT_EQ(text(ask(Operation::kRemove, {"k"})), "1");
  EXPECT_EQ(text(ask(Operation::kRemove, {"k"})), "0");
  EXPECT_EQ(text(ask(Operation::kCheck, {"k"})), "0");
}

TEST_F(TableTest, AddsAndAppends) {
  EXPECT_EQ(text(ask(Operation::kAdd, {"n"}, 5)), "5");
  EXPECT_EQ(text(ask(Operation::kAdd, {"n"}, -7)), "-2");
  EXPECT_EQ(text(ask(Operation::kGet, {"n"})), "-2");
  EXPECT_EQ(text(ask(Operation::kAppend, {"s", "ab"})), "2");
  EXPECT_EQ(text(ask(Operation::kAppend, {"s", "c"})), "3");
  EXPECT_EQ(text(ask(Operation::kGet, {"s"})), "abc");
  EXPECT_THAT(text(ask(Operation::kAdd, {"s"}, 1)), HasSubstr("invalid_argument"));
  EXPECT_EQ(text(ask(Operation::kAdd, {"big"}, INT64_MAX)), std::to_string(INT64_MAX));
  EXPECT_THAT(text(ask(Operation::kAdd, {"big"}, 1)), HasSubstr("too large"));
}

TEST_F(TableTest, ComparesAndSets) {
  EXPECT_EQ(text(ask(Operation::kCompareSet, {"k", "x", "y"})), "x");
  EXPECT_EQ(text(ask(Operation::kCheck, {"k"})), "0");
  EXPECT_EQ(text(ask(Operation::kCompareSet, {"k", "", "first"})), "first");
  EXPECT_EQ(text(ask(Operation::kCompareSet, {"k", "", "second"})), "first");
  EXPECT_EQ(text(ask(Operation::kCompareSet, {"k", "first", "third"})), "third");
}

TEST_F(TableTest, AnswersWhoWaitsWhenTheLastKeyComes) {
  EXPECT_THAT(ask(Operation::kWait, {"a", "b"}, 0, 2), IsEmpty());
  EXPECT_THAT(ask(Operation::kGet, {"b"}, 0, 3), IsEmpty());
  EXPECT_EQ(text(ask(Operation::kSet, {"a", "1"})), "");
  const Replies replies = ask(Operation::kSet, {"b", "2"});
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[1].to.session, 2u);
  EXPECT_EQ(replies[2].to.session, 3u);
  EXPECT_EQ(replies[2].text, "2");
}

TEST_F(TableTest, TellsACancelledRequestWhatIsMissing) {
  ask(Operation::kSet, {"a", ""});
  EXPECT_THAT(ask(Operation::kWait, {"a", "b", "c"}), IsEmpty());
  const auto waiting = static_cast<int64_t>(last_id_);
  EXPECT_EQ(ask(Operation::kCancel, {}, waiting, 2).size(), 1u) << "another session's request";
  const Replies replies = ask(Operation::kCancel, {}, waiting);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].code, Code::kTimeout);
  EXPECT_EQ(replies[1].text, "b, c");
  EXPECT_EQ(ask(Operation::kSet, {"b", ""}).size(), 1u);
}

TEST_F(TableTest, OpensABarrierToTheLastMemberAndAgain) {
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(ask(Operation::kBarrier, {"x"}, place(2, 3), 2), IsEmpty());
    EXPECT_THAT(ask(Operation::kBarrier, {"x"}, place(0, 3), 3), IsEmpty());
    EXPECT_EQ(ask(Operation::kBarrier, {"x"}, place(1, 3), 4).size(), 3u);
  }
}

TEST_F(TableTest, NamesWhoIsMissingAtABarrier) {
  ask(Operation::kBarrier, {"x"}, place(2, 4), 2);
  ask(Operation::kBarrier, {"x"}, place(0, 4), 1);
  const Replies replies = ask(Operation::kCancel, {}, static_cast<int64_t>(last_id_));
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].text, "1, 3");
  const auto second = static_cast<int64_t>(last_id_) - 2;
  table_.forget(1);
  EXPECT_EQ(ask(Operation::kCancel, {}, second, 2)[1].text, "1, 3") << "the first one was here";
  ask(Operation::kBarrier, {"x"}, place(2, 4), 2);
  EXPECT_THAT(text(ask(Operation::kBarrier, {"x"}, place(2, 4), 3)), HasSubstr("came twice"));
  EXPECT_THAT(text(ask(Operation::kBarrier, {"x"}, place(0, 3), 3)), HasSubstr("counts 3"));
  EXPECT_THAT(text(ask(Operation::kBarrier, {"x"}, place(4, 4), 3)), HasSubstr("index 4 of 4"));
}

TEST_F(TableTest, ForgetsWhatALostSessionWaitedFor) {
  ask(Operation::kGet, {"a"}, 0, 2);
  ask(Operation::kBarrier, {"x"}, place(0, 2), 2);
  table_.forget(2);
  EXPECT_EQ(table_.set("a", "1").size(), 0u);
  EXPECT_THAT(ask(Operation::kBarrier, {"x"}, place(1, 2), 1), IsEmpty());
}

TEST_F(TableTest, RefusesWhatIsTooLarge) {
  EXPECT_THAT(text(ask(Operation::kSet, {std::string(kMaxKeyBytes + 1, 'k'), ""})),
              HasSubstr("invalid_argument"));
  EXPECT_THAT(text(ask(Operation::kSet, {"k", std::string(kMaxValueBytes + 1, 'v')})),
              HasSubstr("invalid_argument"));
  const std::string value(kMaxValueBytes, 'v');
  std::string last;
  for (int i = 0; i < 65; ++i) last = text(ask(Operation::kSet, {std::to_string(i), value}));
  EXPECT_THAT(last, HasSubstr("out_of_memory"));
  EXPECT_EQ(text(ask(Operation::kRemove, {"0"})), "1");
  EXPECT_EQ(text(ask(Operation::kSet, {"again", value})), "");
  EXPECT_EQ(text(ask(Operation::kSet, {"again", value})), "") << "replacing needs no more room";
}

TEST_F(TableTest, BoundsHowManyRequestsOfASessionWait) {
  for (size_t i = 0; i < Table::kMaxWaiting; ++i) {
    ASSERT_THAT(ask(Operation::kGet, {"never"}), IsEmpty());
  }
  EXPECT_THAT(text(ask(Operation::kGet, {"never"})), HasSubstr("out_of_memory"));
  EXPECT_THAT(ask(Operation::kGet, {"never"}, 0, 2), IsEmpty());
}

}  // namespace
}  // namespace hanji::launch
