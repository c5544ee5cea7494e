// One rank does something else, in every routine, over every engine: all ranks name it before a
// byte is used. hanji/shm/desync_test.cpp goes through every step list of shared memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"
#include "hanji/comm/tree_reduce.h"

namespace hanji::comm {
namespace {

using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kStray = 2;

/// What a rank calls a routine with.
struct How {
  int64_t count = 12;
  c10::ScalarType type = at::kFloat;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool other_shares = false;  ///< Uneven routines: ranks 0 and 1 change places.
};

struct Buffers {
  at::Tensor input, output;

  Buffers(const Group& group, const How& how, int64_t inputs, int64_t outputs)
      : input(at::full({inputs}, group.rank() + 1, how.type)),
        output(at::full({outputs}, -1, how.type)) {}
  bool unchanged() const { return at::all(output == -1).item<bool>(); }
};

/// One routine: calls it, and says whether it left its output alone.
struct Routine {
  const char* name;
  bool has_op, has_root, has_shares;
  bool (*call)(const Group&, const How&, std::string& said);
};

std::ostream& operator<<(std::ostream& out, const Routine& routine) { return out << routine.name; }

/// What a call throws.
template <class F>
std::string refusal(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(base::name_of(error.code())) + ": " + error.what();
  }
  return "accepted";
}

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

const std::vector<Routine> kRoutines = {
    {"all_reduce", true, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, 0, how.count);
       said = refusal([&] { all_reduce(b.output, group, {.op = how.op}).wait(); });
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
       Buffers b(group, how, how.count, kRanks * how.count);
       said = refusal([&] { all_gather(b.output, b.input, group).wait(); });
       return b.unchanged();
     }},
    {"reduce_scatter", true, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, kRanks * how.count, how.count);
       said = refusal([&] { reduce_scatter(b.output, b.input, group, {.op = how.op}).wait(); });
       return b.unchanged();
     }},
    {"gather", false, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, how.count, group.rank() == how.root ? kRanks * how.count : 0);
       said = refusal([&] { gather(b.output, b.input, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"scatter", false, true, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, group.rank() == how.root ? kRanks * how.count : 0, how.count);
       said = refusal([&] { scatter(b.output, b.input, how.root, group).wait(); });
       return b.unchanged();
     }},
    {"all_to_all", false, false, false,
     [](const Group& group, const How& how, std::string& said) {
       Buffers b(group, how, kRanks * how.count, kRanks * how.count);
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
       for (int peer = 0; peer < kRanks; ++peer) {
         inputs += counts[group.rank() * kRanks + peer];
         outputs += counts[peer * kRanks + group.rank()];
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

constexpr std::string_view kShm = "shm";

struct Engine {
  std::string_view name;
  Group (*make)(const Group& shm);
};

std::vector<Engine> engines() {
  std::vector<Engine> all = {{kShm, [](const Group& shm) { return shm; }}};
  if (gloo::available()) {
    all.push_back({"gloo", [](const Group& shm) { return gloo::make_group(shm, shm.options()); }});
  }
  return all;
}

/// The stray rank calls `other` in its way, the others `routine` in theirs.
void expect_named(const Routine& routine, const Routine& other, const How& how) {
  for (const Engine& engine : engines()) {
    // Peers must map the partial sums of a tree: every other engine refuses it before anybody meets.
    if (routine.name == std::string_view("tree_all_reduce") && engine.name != kShm) continue;
    SCOPED_TRACE(std::string(engine.name) + ", " + other.name);
    internal::run_ranks(kRanks, [&](const Group& shm) {
      const Group group = engine.make(shm);
      const bool strays = group.rank() == kStray;
      std::string said;
      const bool unchanged = (strays ? other : routine).call(group, strays ? how : How{}, said);
      EXPECT_THAT(said, AllOf(HasSubstr("mismatch: "), HasSubstr("rank 2 call"),
                              HasSubstr("rank 0 call"), HasSubstr("desync_test.cpp:")));
      EXPECT_TRUE(unchanged) << engine.name << " " << routine.name;
      std::string again;
      routine.call(group, {}, again);
      EXPECT_THAT(again, HasSubstr("mismatch: ")) << "the group stays poisoned";
    });
  }
}

class Desync : public testing::TestWithParam<Routine> {};

TEST_P(Desync, IsNamedOnEveryRankOverEveryEngine) {
  const Routine& routine = GetParam();
  const bool empty = std::string_view(routine.name) == "barrier";
  expect_named(routine, kRoutines[empty ? 0 : kRoutines.size() - 1], {});
  if (empty) return;
  expect_named(routine, routine, {.count = 15});
  expect_named(routine, routine, {.type = at::kInt});
  if (routine.has_op) expect_named(routine, routine, {.op = ReduceOp::kMax});
  if (routine.has_root) expect_named(routine, routine, {.root = 1});
  if (routine.has_shares) expect_named(routine, routine, {.other_shares = true});
}

INSTANTIATE_TEST_SUITE_P(InEveryRoutine, Desync, testing::ValuesIn(kRoutines),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hanji::comm
