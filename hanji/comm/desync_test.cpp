// One rank does something else, in every routine: all ranks name it before a byte is used. Here over
// shared memory, whose every step list hanji/shm/desync_test.cpp goes through, and over Gloo; other
// engines have these cases in tests of their own.
#include <gmock/gmock.h>

#include "hanji/comm/gloo/group.h"
#include "hanji/comm/internal/desync_cases.h"
#include "hanji/comm/internal/test_ranks.h"

namespace hanji::comm {
namespace {

using internal::DesyncEngine;

/// Ranks as threads, over shared memory, or what `make` makes of it.
DesyncEngine engine_of_threads(std::string name, Group (*make)(const Group&, GroupOptions)) {
  DesyncEngine engine{std::move(name), {}, make == nullptr};
  engine.run = [make](const auto& body, const auto& change) {
    const auto segment = internal::make_segment(internal::kDesyncRanks);
    test::run_threads(internal::kDesyncRanks, [&](int rank) {
      GroupOptions options;
      options.deadline = std::chrono::seconds(60);
      GroupOptions changed = options;
      change(changed, rank);
      const bool direct = make == nullptr;
      const Group shm = Group::over_shm(segment, 0, {0, 1, 2}, rank, direct ? changed : options);
      body(direct ? shm : make(shm, changed));
    });
  };
  return engine;
}

std::vector<DesyncEngine> engines() {
  std::vector<DesyncEngine> all = {engine_of_threads("shm", nullptr)};
  if (gloo::available()) all.push_back(engine_of_threads("gloo", gloo::make_group));
  return all;
}

class Desync : public testing::TestWithParam<internal::DesyncRoutine> {};

TEST_P(Desync, IsNamedOnEveryRankOverEveryEngine) {
  for (const DesyncEngine& engine : engines()) {
    internal::check_disagreements(engine, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, Desync, testing::ValuesIn(internal::desync_routines()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DesyncOf, WaysMessagesAndGroupsIsNamedOnEveryRank) {
  for (const DesyncEngine& engine : engines()) {
    internal::check_other_ways(engine);
    internal::check_messages(engine);
    internal::check_crossed_groups(engine);
    internal::check_subgroups(engine);
  }
}

}  // namespace
}  // namespace hanji::comm
