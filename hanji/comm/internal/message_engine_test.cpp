// What a group over a wire says when a message does not come.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/internal/message_engine.h"
#include "hanji/comm/internal/message_group.h"
#include "hanji/comm/internal/test_ranks.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::refusal;
using testing::AllOf;
using testing::HasSubstr;

enum class Blocks : bool { kNo, kYes };

/// Rank 0 of three, whose peers call what it calls and then fall silent.
class SilentWire final : public Wire {
 public:
  explicit SilentWire(Blocks blocks, Code code) : blocks_(blocks), code_(code) {}

  std::string_view name() const override { return "silent"; }
  int rank() const override { return 0; }
  int size() const override { return 3; }
  bool serves(c10::Device) const override { return true; }
  bool native(schedule::Routine, Shares) const override { return false; }
  bool blocks() const override { return blocks_ == Blocks::kYes; }
  void keep(base::Deadline until) override { until_ = until; }

  std::unique_ptr<Pending> send(const void*, int64_t, int) override {
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Pending> receive(void*, int64_t, int) override {
    return std::make_unique<Silence>(*this);
  }
  std::unique_ptr<Pending> gather(std::span<const std::byte> mine,
                                  std::span<std::byte> all) override {
    for (auto place = all.begin(); place != all.end(); place += mine.size()) {
      std::ranges::copy(mine, place);
    }
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Pending> run(const Request&) override { return std::make_unique<Silence>(*this); }

 private:
  struct Ended final : Pending {
    bool done() override { return true; }
  };
  struct Silence final : Pending {
    explicit Silence(SilentWire& wire) : wire(wire) {}
    bool done() override {
      if (wire.blocks_ == Blocks::kNo) return false;
      if (wire.code_ == Code::kTimeout) std::this_thread::sleep_for(wire.until_.remaining());
      throw Error(Status(wire.code_, "the wire's own words"));
    }
    SilentWire& wire;
  };

  const Blocks blocks_;
  const Code code_;
  base::Deadline until_ = base::Deadline::never();
};

std::string said(Blocks blocks, Code code, RankNames names = {}) {
  GroupOptions options;
  options.rank_names = std::move(names);
  options.name = "silent group";
  options.deadline = 60s;
  const Group group = make_message_group(
      {.wire = std::make_unique<SilentWire>(blocks, code), .open_channel = nullptr, .divide = {}},
      options);
  at::Tensor tensor = at::ones({9});
  return refusal([&] { all_reduce(tensor, group, {.label = "wte", .deadline = 50ms}).wait(); });
}

TEST(MessageEngine, NamesTheRankWhoseBytesDoNotComeByTheCallsDeadline) {
  const auto common =
      AllOf(HasSubstr("timeout: group silent group: "), HasSubstr("all_reduce"), HasSubstr("wte"),
            HasSubstr("message_engine_test.cpp:"), HasSubstr("not all bytes came within 0.05 s"),
            HasSubstr("longer deadline"));
  EXPECT_THAT(said(Blocks::kNo, Code::kTimeout), AllOf(common, HasSubstr("waits for rank 1, 2;")));
  EXPECT_THAT(said(Blocks::kYes, Code::kTimeout), AllOf(common, HasSubstr("waits for rank 1;")));
}

TEST(MessageEngine, NamesRanksOfAMeshByTheirCoordinates) {
  const RankNames names({"1 (dp=0,tp=1)", "3 (dp=1,tp=1)", "5 (dp=2,tp=1)"});
  EXPECT_THAT(said(Blocks::kNo, Code::kTimeout, names),
              AllOf(HasSubstr("rank 1 (dp=0,tp=1) of 3: all_reduce"),
                    HasSubstr("waits for rank 3 (dp=1,tp=1), 5 (dp=2,tp=1);")));
}

TEST(MessageEngine, NeverCallsDoneWhatItsThreadFailedIn) {
  MessageEngine engine(std::make_unique<SilentWire>(Blocks::kYes, Code::kPeerLost), {});
  const at::Tensor tensor = at::ones({9});
  Request request;
  request.routine = schedule::Routine::kAllReduce;
  request.input = request.output = tensor;
  request.count = tensor.numel();
  const auto ticket = engine.submit(request, {});
  ASSERT_TRUE(ticket.ok());
  while (engine.check().ok()) std::this_thread::yield();
  EXPECT_FALSE(engine.done(*ticket)) << "what came is not the result";
}

TEST(MessageEngine, NamesTheRankWhoseConnectionBroke) {
  EXPECT_THAT(said(Blocks::kYes, Code::kPeerLost),
              AllOf(HasSubstr("peer_lost: group silent group: "), HasSubstr("waited for rank 1: "),
                    HasSubstr("the wire's own words")));
}

}  // namespace
}  // namespace hanji::comm
