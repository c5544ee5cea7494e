#include <fmt/format.h>

#include <initializer_list>

#include "hanji/test/model/protocol.h"

namespace hanji::test::model {
namespace {

const char* name_of(Routine routine) {
  switch (routine) {
    case Routine::kBarrier: return "barrier";
    case Routine::kAllReduceInLine: return "all_reduce in the line";
    case Routine::kAllReduceFlat: return "all_reduce flat";
    case Routine::kAllReduceDirect: return "all_reduce direct";
    case Routine::kAllReduceStaged: return "all_reduce staged";
    case Routine::kBroadcastFlat: return "broadcast flat";
    case Routine::kAllGatherDirect: return "all_gather direct";
    case Routine::kSendFlat: return "send flat";
    case Routine::kSendDirect: return "send direct";
    case Routine::kSendStaged: return "send staged";
  }
  return "";
}

}  // namespace

std::string describe(const Scenario& scenario) {
  const char* waits = scenario.waits == Waits::kPoll    ? "polling"
                      : scenario.waits == Waits::kSleep ? "sleeping"
                                                        : "mixed";
  return fmt::format("{} ranks, {} x {}, {}{}{}{}", scenario.ranks, scenario.calls,
                     name_of(scenario.routine), waits, scenario.ahead ? ", submitted ahead" : "",
                     scenario.mismatch ? ", one differs" : "", scenario.death ? ", one dies" : "");
}

std::vector<Scenario> small_scenarios() {
  using R = Routine;
  std::vector<Scenario> all;
  const auto add = [&all](Waits waits, int calls, std::initializer_list<Routine> routines) {
    for (const Routine routine : routines) {
      all.push_back({.routine = routine, .calls = calls, .waits = waits});
    }
  };
  add(Waits::kPoll, 3,
      {R::kBarrier, R::kAllReduceInLine, R::kAllReduceFlat, R::kBroadcastFlat, R::kSendFlat});
  add(Waits::kPoll, 2, {R::kAllReduceDirect, R::kAllGatherDirect, R::kSendDirect});
  add(Waits::kPoll, 1, {R::kSendStaged});
  add(Waits::kSleep, 2, {R::kBarrier, R::kAllReduceInLine, R::kSendFlat});
  add(Waits::kSleep, 1, {R::kAllReduceDirect});
  add(Waits::kMixed, 2, {R::kBarrier, R::kAllReduceFlat});
  all.push_back({.routine = R::kAllReduceFlat, .calls = 3, .ahead = true});
  all.push_back({.routine = R::kSendDirect, .calls = 2, .ahead = true});
  all.push_back({.routine = R::kSendDirect, .mismatch = true});
  all.push_back({.routine = R::kAllReduceInLine, .mismatch = true});
  return all;
}

std::vector<Scenario> large_scenarios() {
  using R = Routine;
  std::vector<Scenario> all;
  const auto add = [&all](Scenario common, std::initializer_list<Routine> routines) {
    for (const Routine routine : routines) {
      all.push_back(common);
      all.back().routine = routine;
    }
  };
  add({.calls = 4}, {R::kBarrier, R::kAllReduceInLine, R::kAllReduceFlat, R::kBroadcastFlat});
  add({.calls = 3, .ahead = true}, {R::kSendDirect});
  add({.waits = Waits::kSleep, .ahead = true}, {R::kSendDirect});
  add({.calls = 1}, {R::kAllReduceStaged});
  add({.calls = 1, .death = true}, {R::kBarrier, R::kAllReduceInLine});
  add({.calls = 1, .waits = Waits::kSleep, .death = true}, {R::kBarrier, R::kAllReduceInLine});
  add({.calls = 1, .waits = Waits::kSleep, .mismatch = true}, {R::kAllReduceInLine});
  add({.waits = Waits::kSleep, .mismatch = true}, {R::kAllReduceInLine});
  add({.ranks = 3, .calls = 1}, {R::kBarrier, R::kAllReduceInLine});
  add({.ranks = 3, .calls = 1, .mismatch = true}, {R::kAllReduceInLine});
  return all;
}

}  // namespace hanji::test::model
