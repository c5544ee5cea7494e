#include "hanji/comm/internal/ring_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "hanji/comm/internal/choose.h"
#include "hanji/comm/internal/message_engine.h"
#include "hanji/cost/select.h"
#include "hanji/schedule/check.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using schedule::Routine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A wire over which others have said where they are; the caller is rank 0.
class ToldWire final : public Wire {
 public:
  explicit ToldWire(std::vector<std::string> places, bool ends = true)
      : places_(std::move(places)), ends_(ends) {}

  std::string_view name() const override { return "told"; }
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(places_.size()); }
  bool serves(c10::Device) const override { return true; }
  bool native(Routine, Shares) const override { return false; }
  bool blocks() const override { return false; }
  std::unique_ptr<Pending> send(const void*, int64_t, int) override { return nullptr; }
  std::unique_ptr<Pending> receive(void*, int64_t, int) override { return nullptr; }
  std::unique_ptr<Pending> run(const Request&) override { return nullptr; }
  std::vector<int> absent() const override { return {3}; }

  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override {
    struct Ended final : Pending {
      explicit Ended(bool ends) : ends_(ends) {}
      bool done() override { return ends_; }
      const bool ends_;
    };
    std::ranges::fill(all, std::byte{0});
    for (size_t rank = 0; rank < places_.size(); ++rank) {
      std::memcpy(all.data() + rank * mine.size(), places_[rank].data(), places_[rank].size());
    }
    return std::make_unique<Ended>(ends_);
  }

 private:
  const std::vector<std::string> places_;
  const bool ends_;
};

const std::vector<std::string> kInARow = {"host:a package:0", "host:a package:0",
                                          "host:b package:0", "host:b package:0"};
const std::vector<std::string> kByTurns = {"host:a package:0", "host:b package:0",
                                           "host:a package:0", "host:b package:0"};

std::vector<int> order_of(std::vector<std::string> places) {
  ToldWire wire(std::move(places));
  return ring_order(wire, 1s);
}

TEST(RingOrder, PutsNeighboursNextToEachOther) {
  EXPECT_THAT(order_of(kInARow), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of(kByTurns), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_of({"host:a", "host:b"}), IsEmpty());
}

TEST(RingOrder, NamesWhoDidNotCome) {
  ToldWire wire(kByTurns, false);
  try {
    ring_order(wire, 10ms);
    FAIL() << "nobody came";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("did not come: 3"));
  }
}

// The list by which a broadcast from rank 2 is carried out by ranks in this order.
schedule::StepList broadcast_along(const std::vector<int>& order, int64_t count) {
  const MessageEngine engine(std::make_unique<ToldWire>(kByTurns), {}, order);
  Request request;
  request.routine = Routine::kBroadcast;
  request.dtype = DType::kFloat32;
  request.count = count;
  request.root = 2;
  cost::Chooser chooser{cost::Rates{}};
  return *choose(request, engine, Bits::kRun, chooser).or_throw().steps;
}

TEST(Choose, ListsOfMessagesFollowTheOrder) {
  for (const int64_t count : {int64_t{16}, int64_t{1} << 20}) {  // unasked, and priced
    const auto in_a_row = broadcast_along({0, 1, 2, 3}, count);
    const auto by_turns = broadcast_along({0, 2, 1, 3}, count);
    EXPECT_NE(in_a_row, by_turns) << count;
    for (const auto& list : {in_a_row, by_turns}) {
      EXPECT_EQ(schedule::check(list).message(), "") << count;
      EXPECT_EQ(list.root, 2);
    }
  }
}

}  // namespace
}  // namespace hanji::comm
