#include "hanji/comm/internal/desync_cases.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/cost/select.h"

namespace hanji::comm::internal {

using schedule::ReduceOp;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

struct How {
  int64_t count = 12;
  c10::ScalarType type = at::kFloat;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool other_shares = false;  ///< Uneven routines: ranks 0 and 1 change places.
  std::chrono::nanoseconds deadline{0};
};

namespace {

constexpr int kStray = kDesyncRanks - 1;

struct Buffers {
  at::Tensor input, output;

  Buffers(const Group& group, const How& how, int64_t inputs, int64_t outputs)
      : input(at::full({inputs}, group.rank() + 1, how.type)),
        output(at::full({outputs}, -1, how.type)) {}
  bool unchanged() const { return at::all(output == -1).item<bool>(); }
};

std::vector<int64_t> shares(const How& how) {
  const int64_t third = how.count / 3;
  std::vector<int64_t> counts = {third - 1, third, how.count - 2 * third + 1};
  if (how.other_shares) std::swap(counts[0], counts[1]);
  return counts;
}

/// What each gives to each; the stray rank's own are alike in both.
std::vector<int64_t> pairs(const How& how) {
  std::vector<int64_t> counts = {1, 2, 1, 4, 1, 1, 1, 1, how.count};
  if (how.other_shares) std::swap(counts[1], counts[3]);
  return counts;
}

const std::vector<DesyncRoutine> kRoutines = {
    {"all_reduce", true, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, 0, how.count);
       said = refusal(
           [&] { all_reduce(b.output, group, {.op = how.op, .deadline = how.deadline}).wait(); });
       return b.unchanged();
     }},
    {"reduce", true, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, how.count, group.rank() == how.root ? how.count : 0);
       said = refusal([&] { reduce(b.output, b.input, how.root, group, {.op = how.op}).wait(); });
       return b.unchanged();
     }},
    {"broadcast", false, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, 0, how.count);
       said = refusal([&] { broadcast(b.output, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"all_gather", false, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, how.count, kDesyncRanks * how.count);
       said = refusal([&] { all_gather(b.output, b.input, group).wait(); });
       return b.unchanged();
     }},
    {"reduce_scatter", true, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, kDesyncRanks * how.count, how.count);
       said = refusal([&] { reduce_scatter(b.output, b.input, group, {.op = how.op}).wait(); });
       return b.unchanged();
     }},
    {"gather", false, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, how.count, group.rank() == how.root ? kDesyncRanks * how.count : 0);
       said = refusal([&] { gather(b.output, b.input, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"scatter", false, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, group.rank() == how.root ? kDesyncRanks * how.count : 0, how.count);
       said = refusal([&] { scatter(b.output, b.input, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"all_to_all", false, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, kDesyncRanks * how.count, kDesyncRanks * how.count);
       said = refusal([&] { all_to_all(b.output, b.input, group).wait(); });
       return b.unchanged();
     }},
    {"tree_all_reduce", false, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, how.count, how.count);
       const auto tree =
           schedule::grain_tree(3, std::vector<layout::Range>{{0, 1}, {1, 2}, {2, 3}});
       const at::Tensor parts = b.input.view({1, how.count});
       said = refusal([&] { tree_all_reduce(parts, b.output, tree, group).wait(); });
       return b.unchanged();
     }},
    {"uneven_all_gather", false, false, true,
     [](const Group& group, const How& how, std::string& said) {
       const auto counts = shares(how);
       Buffers b(group, how, counts[group.rank()], how.count);
       said = refusal([&] { all_gather(b.output, b.input, counts, group).wait(); });
       return b.unchanged();
     }},
    {"uneven_reduce_scatter", true, false, true,
     [](const Group& group, const How& how, std::string& said) {
       const auto counts = shares(how);
       Buffers b(group, how, how.count, counts[group.rank()]);
       said = refusal(
           [&] { reduce_scatter(b.output, b.input, counts, group, {.op = how.op}).wait(); });
       return b.unchanged();
     }},
    {"uneven_gather", false, true, true,
     [](const Group& group, const How& how, std::string& said) {
       const auto counts = shares(how);
       Buffers b(group, how, counts[group.rank()], group.rank() == how.root ? how.count : 0);
       said = refusal([&] { gather(b.output, b.input, counts, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"uneven_scatter", false, true, true,
     [](const Group& group, const How& how, std::string& said) {
       const auto counts = shares(how);
       Buffers b(group, how, group.rank() == how.root ? how.count : 0, counts[group.rank()]);
       said = refusal([&] { scatter(b.output, b.input, counts, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"uneven_all_to_all", false, false, true,
     [](const Group& group, const How& how, std::string& said) {
       const auto counts = pairs(how);
       int64_t inputs = 0, outputs = 0;
       for (int peer = 0; peer < kDesyncRanks; ++peer) {
         inputs += counts[group.rank() * kDesyncRanks + peer];
         outputs += counts[peer * kDesyncRanks + group.rank()];
       }
       Buffers b(group, how, inputs, outputs);
       said = refusal([&] { all_to_all(b.output, b.input, counts, group).wait(); });
       return b.unchanged();
     }},
    {"barrier", false, false, false,
     [](const Group& group, const How&, std::string& said) {
       said = refusal([&] { barrier(group); });
       return true;
     }},
};

/// Calls of the stray rank and of the others: which disagree.
struct Calls {
  const DesyncRoutine& due;
  const DesyncRoutine& strays;
  How how = {};        ///< Of the stray rank.
  How otherwise = {};  ///< Of the others.
};

/// Every rank names the stray one and both calls, and its output is as before; so is the group's end.
void expect_named(const Group& group, const Calls& calls) {
  const bool strays = group.rank() == kStray;
  std::string said;
  const bool unchanged =
      (strays ? calls.strays : calls.due).call(group, strays ? calls.how : calls.otherwise, said);
  // A subgroup of one host also tells the rank's number there, in brackets.
  EXPECT_THAT(said,
              AllOf(HasSubstr("mismatch: "), ContainsRegex("rank 2( \\(.*\\))? call"),
                    ContainsRegex("rank [01]( \\(.*\\))? call"), HasSubstr("desync_cases.cpp:")));
  EXPECT_TRUE(unchanged) << "a byte was used";
  std::string again;
  calls.due.call(group, calls.otherwise, again);
  EXPECT_THAT(again, HasSubstr("mismatch: ")) << "the group stays poisoned";
}

void expect_named(
    const DesyncEngine& engine, const Calls& calls,
    const ChangeOptions& change = [](GroupOptions&, int) {}) {
  // Peers must map the partial sums of a tree: every other engine refuses it before anybody meets.
  if (calls.due.name == std::string_view("tree_all_reduce") && !engine.shares_memory) return;
  SCOPED_TRACE(engine.name + ": " + calls.due.name + " and " + calls.strays.name);
  engine.run([&](const Group& group) { expect_named(group, calls); }, change);
}

const DesyncRoutine& routine(std::string_view name) {
  return *std::ranges::find(kRoutines, name, &DesyncRoutine::name);
}

/// What a message is sent or received with.
struct Letter {
  int64_t count = 12;
  c10::ScalarType type = at::kFloat;
  uint64_t tag = 7;
};

void expect_message_named(const Group& group, int sender, const Letter& expected) {
  barrier(group);  // ranks without a part in it leave after all have come
  const Letter sent;
  at::Tensor got = at::full({expected.count}, -1, expected.type);
  std::string said;
  if (group.rank() == sender) {
    const at::Tensor tensor = at::ones({sent.count}, sent.type);
    said = refusal([&] { send(tensor, kStray, group, {.tag = sent.tag}).wait(); });
  } else if (group.rank() == kStray) {
    said = refusal([&] { recv(got, sender, group, {.tag = expected.tag}).wait(); });
  } else {
    return;
  }
  EXPECT_THAT(said, AllOf(HasSubstr("mismatch: "), ContainsRegex("rank 2 call(s|ed) recv"),
                          ContainsRegex("rank " + std::to_string(sender) + " call(s|ed) send"),
                          HasSubstr("desync_cases.cpp:")));
  EXPECT_TRUE(at::all(got == -1).item<bool>()) << "a byte was used";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const DesyncRoutine& routine) {
  return out << routine.name;
}

std::span<const DesyncRoutine> desync_routines() { return kRoutines; }

void check_disagreements(const DesyncEngine& engine, const DesyncRoutine& routine) {
  const bool empty = std::string_view(routine.name) == "barrier";
  expect_named(engine, {routine, kRoutines[empty ? 0 : kRoutines.size() - 1]});
  if (empty) return;
  expect_named(engine, {routine, routine, {.count = 15}});
  expect_named(engine, {routine, routine, {.type = at::kInt}});
  if (routine.has_op) expect_named(engine, {routine, routine, {.op = ReduceOp::kMax}});
  if (routine.has_root) expect_named(engine, {routine, routine, {.root = 1}});
  if (routine.has_shares) expect_named(engine, {routine, routine, {.other_shares = true}});
}

void check_other_ways(const DesyncEngine& engine) {
  const DesyncRoutine& all_reduce = routine("all_reduce");
  const How how = {.type = at::kInt};
  expect_named(engine, {all_reduce, all_reduce, how, how}, [&](GroupOptions& options, int rank) {
    const char* mine = engine.shares_memory ? "flat" : "ring";
    const char* theirs = engine.shares_memory ? "staged" : "recursive_doubling";
    options.chooser = std::make_shared<cost::Chooser>(
        cost::Rates{},
        cost::NamedAlgorithms{{schedule::Routine::kAllReduce, rank == kStray ? mine : theirs}});
  });
  if (engine.shares_memory) return;
  expect_named(engine, {all_reduce, all_reduce}, [](GroupOptions& options, int rank) {
    options.bits = rank == kStray ? Bits::kFast : Bits::kRun;
  });
}

void check_messages(const DesyncEngine& engine) {
  for (const Letter& expected : {Letter{.count = 5}, Letter{.type = at::kInt}, Letter{.tag = 8}}) {
    for (int sender = 0; sender < kStray; ++sender) {
      SCOPED_TRACE(engine.name + ": a message from rank " + std::to_string(sender));
      engine.run([&](const Group& group) { expect_message_named(group, sender, expected); },
                 [](GroupOptions&, int) {});
    }
  }
}

void check_crossed_groups(const DesyncEngine& engine) {
  SCOPED_TRACE(engine.name + ": two groups");
  engine.run(
      [](const Group& group) {
        const Group other = group.subgroup({0, 1, 2}, "other");
        std::string said;
        const Group& called = group.rank() == kStray ? other : group;
        const How soon = {.deadline = std::chrono::milliseconds(400)};
        EXPECT_TRUE(routine("all_reduce").call(called, soon, said)) << "a byte was used";
        // Between processes, the rank that gives up first closes its connections to the others.
        EXPECT_THAT(said, AllOf(AnyOf(HasSubstr("timeout: "), HasSubstr("peer_lost: ")),
                                HasSubstr("rank")));
      },
      [](GroupOptions&, int) {});
}

void check_subgroups(const DesyncEngine& engine) {
  for (const char* name : {"all_reduce", "uneven_all_gather", "barrier"}) {
    SCOPED_TRACE(engine.name + ": a subgroup, " + name);
    const bool empty = name == std::string_view("barrier");
    engine.run(
        [&](const Group& group) {
          const Group turned = group.subgroup({1, 2, 0}, "turned");
          expect_named(turned, {routine(name), routine(empty ? "broadcast" : name), {.count = 15}});
        },
        [](GroupOptions&, int) {});
  }
}

}  // namespace hanji::comm::internal
