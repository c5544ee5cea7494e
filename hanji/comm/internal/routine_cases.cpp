#include "hanji/comm/internal/routine_cases.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <numeric>
#include <vector>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/dtype.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/message.h"
#include "hanji/comm/prepare.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/shm/reduce.h"

namespace hanji::comm::internal {
namespace {

using schedule::ReduceOp;

const c10::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                  at::kInt,    at::kLong,  at::kByte};

std::vector<int64_t> uneven(int64_t count, int size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back((rank * 3 + 1) % 4 * count / 3);
  return counts;
}

int64_t sum_of(const std::vector<int64_t>& counts, int64_t end) {
  return std::accumulate(counts.begin(), counts.begin() + end, int64_t{0});
}

int64_t sum_of(const std::vector<int64_t>& counts) {
  return sum_of(counts, static_cast<int64_t>(counts.size()));
}

/// numbers() of all ranks together.
at::Tensor sums(int64_t count, const Group& group, c10::ScalarType type = at::kFloat) {
  const int n = group.size();
  return (numbers(count, 0, at::kLong) * n + n * (n - 1) / 2).to(type);
}

void check_all_reduce(const Group& group, int64_t count) {
  for (const c10::ScalarType type : kTypes) {
    const at::Tensor input = numbers(count, group.rank(), type);
    at::Tensor sum = input.clone();
    all_reduce(sum, group).wait();
    EXPECT_TRUE(at::equal(sum, sums(count, group, type))) << type;
    at::Tensor largest = input.clone();
    all_reduce(largest, group, {.op = ReduceOp::kMax}).wait();
    EXPECT_TRUE(at::equal(largest, numbers(count, group.size() - 1, type))) << type;
    at::Tensor least = input.clone();
    all_reduce(least, group, {.op = ReduceOp::kMin}).wait();
    EXPECT_TRUE(at::equal(least, numbers(count, 0, type))) << type;
    at::Tensor mean = at::full({count}, 2 * group.rank(), type);
    all_reduce(mean, group, {.op = ReduceOp::kAvg}).wait();
    EXPECT_TRUE(at::equal(mean, at::full({count}, group.size() - 1, type))) << type;
    at::Tensor product = at::full({count}, group.rank() % 3 + 1, type);
    all_reduce(product, group, {.op = ReduceOp::kProd}).wait();
    int due = 1;
    for (int rank = 0; rank < group.size(); ++rank) due *= rank % 3 + 1;
    EXPECT_TRUE(at::equal(product, at::full({count}, due, type))) << type;
  }
}

void check_bits_of_integers(const Group& group, int64_t count) {
  for (const c10::ScalarType type : {at::kInt, at::kLong, at::kByte}) {
    const auto combined = [&](ReduceOp op) {
      at::Tensor tensor = at::full({count}, 64 + (1 << group.rank() % 4), type);
      all_reduce(tensor, group, {.op = op}).wait();
      return tensor;
    };
    int any = 64, all = 127, odd = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      any |= 64 + (1 << rank % 4);
      all &= 64 + (1 << rank % 4);
      odd ^= 64 + (1 << rank % 4);
    }
    EXPECT_TRUE(at::equal(combined(ReduceOp::kBitOr), at::full({count}, any, type)));
    EXPECT_TRUE(at::equal(combined(ReduceOp::kBitAnd), at::full({count}, all, type)));
    EXPECT_TRUE(at::equal(combined(ReduceOp::kBitXor), at::full({count}, odd, type)));
  }
}

at::Tensor rough(int64_t count, int rank, c10::ScalarType type) {
  return (at::sin(at::arange(count, at::kDouble) * 0.37 + rank) * 50 + 60).to(type);
}

/// What the one order of all sums gives.
at::Tensor ordered_sum(int64_t count, const Group& group, c10::ScalarType type) {
  std::vector<at::Tensor> inputs;
  std::vector<const void*> sources;
  for (int rank = 0; rank < group.size(); ++rank) {
    inputs.push_back(rough(count, rank, type));
    sources.push_back(inputs.back().const_data_ptr());
  }
  at::Tensor sum = at::zeros({count}, type);
  void* const to[] = {sum.data_ptr()};
  shm::reduce(to_dtype(type), ReduceOp::kSum, sources, schedule::pairwise_tree(group.size()), to,
              count);
  return sum;
}

void check_order(const Group& group, int64_t count) {
  const bool exact = group.options().bits == Bits::kRun || group.size() <= 2;
  for (const c10::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const int n = group.size();
    const int64_t total = count * n;
    const at::Tensor due = ordered_sum(total, group, type);
    // Each of the n - 1 roundings of an order of its own is off by half a unit in the last place.
    const double tolerance = n * (type == at::kBFloat16 ? 0x1p-8
                                  : type == at::kHalf   ? 0x1p-11
                                                        : 0x1p-24);
    const auto expect = [&](const at::Tensor& got, const at::Tensor& wanted) {
      EXPECT_TRUE(exact ? at::equal(got, wanted)
                        : at::allclose(got.to(at::kDouble), wanted.to(at::kDouble), tolerance, 0))
          << type << " " << count;
    };
    const at::Tensor input = rough(total, group.rank(), type);
    at::Tensor everywhere = input.clone();
    all_reduce(everywhere, group).wait();
    expect(everywhere, due);
    at::Tensor at_root = input.clone();
    reduce(at_root, n - 1, group).wait();
    if (group.rank() == n - 1) expect(at_root, due);
    at::Tensor shard = at::zeros({count}, type);
    reduce_scatter(shard, input, group).wait();
    expect(shard, due.narrow(0, count * group.rank(), count));
  }
}

/// The partial sums of the grains of rank `rank`.
at::Tensor fold_grains(const schedule::GrainTree& tree, int rank, int64_t count,
                       c10::ScalarType type) {
  const schedule::Fold& fold = tree.ranks[rank];
  at::Tensor buffers = at::zeros({std::max(fold.num_buffers, 1), count}, type);
  for (const schedule::FoldStep& step : fold.steps) {
    buffers[step.buffer].copy_(rough(count, static_cast<int>(step.grain), type));
    for (const auto& [into, from] : step.combines) buffers[into].add_(buffers[from]);
  }
  return buffers.narrow(0, 0, std::ssize(fold.partials));
}

/// Grains that ranks own unevenly; each rank folds its own, the engine does the rest.
void check_tree(const Group& group, int64_t count) {
  std::vector<layout::Range> owners;
  int64_t next = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int64_t size = rank == 0 ? 5 : (rank * 7) % 4;
    owners.push_back({next, next + size});
    next += size;
  }
  const schedule::GrainTree tree = schedule::grain_tree(next, owners);
  const schedule::GrainTree alone = schedule::grain_tree(next, {{{0, next}}});
  for (const c10::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    at::Tensor output = at::zeros({count}, type);
    tree_all_reduce(fold_grains(tree, group.rank(), count, type), output, tree, group).wait();
    EXPECT_TRUE(at::equal(output, fold_grains(alone, 0, count, type)[0])) << type;
  }
}

void check_reduce(const Group& group, int64_t count) {
  for (const int root : {0, group.size() - 1}) {
    at::Tensor tensor = numbers(count, group.rank(), at::kInt);
    reduce(tensor, root, group).wait();
    const bool at_root = group.rank() == root;
    EXPECT_TRUE(at::equal(
        tensor, at_root ? sums(count, group, at::kInt) : numbers(count, group.rank(), at::kInt)));
  }
}

void check_broadcast(const Group& group, int64_t count) {
  for (const int root : {0, group.size() - 1}) {
    for (const c10::ScalarType type : {at::kFloat, at::kBool, at::kComplexDouble, at::kShort}) {
      at::Tensor tensor = numbers(count, group.rank(), type);
      broadcast(tensor, root, group).wait();
      EXPECT_TRUE(at::equal(tensor, numbers(count, root, type)));
    }
  }
}

void check_all_gather(const Group& group, int64_t count) {
  std::vector<at::Tensor> even, shares;
  const auto counts = uneven(count, group.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    even.push_back(numbers(count, rank));
    shares.push_back(numbers(counts[rank], rank, at::kHalf));
  }
  at::Tensor output = at::zeros({count * group.size()});
  all_gather(output, even[group.rank()], group).wait();
  EXPECT_TRUE(at::equal(output, at::cat(even)));
  output.zero_();
  at::Tensor own = output.narrow(0, count * group.rank(), count);
  own.copy_(even[group.rank()]);
  all_gather(output, own, group).wait();
  EXPECT_TRUE(at::equal(output, at::cat(even))) << "in place";
  output = at::zeros({sum_of(counts)}, at::kHalf);
  all_gather(output, shares[group.rank()], counts, group).wait();
  EXPECT_TRUE(at::equal(output, at::cat(shares))) << "uneven";
}

void check_reduce_scatter(const Group& group, int64_t count) {
  const int n = group.size();
  at::Tensor input = numbers(count * n, group.rank());
  const at::Tensor due = sums(count * n, group).narrow(0, count * group.rank(), count);
  at::Tensor output = at::zeros({count});
  reduce_scatter(output, input, group).wait();
  EXPECT_TRUE(at::equal(output, due));
  at::Tensor own = input.narrow(0, count * group.rank(), count);
  reduce_scatter(own, input, group).wait();
  EXPECT_TRUE(at::equal(own, due)) << "in place";
  const auto counts = uneven(count, n);
  for (const c10::ScalarType type : {at::kFloat, at::kInt}) {
    at::Tensor share = at::zeros({counts[group.rank()]}, type);
    reduce_scatter(share, numbers(sum_of(counts), group.rank(), type), counts, group).wait();
    EXPECT_TRUE(at::equal(
        share,
        sums(sum_of(counts), group, type).narrow(0, sum_of(counts, group.rank()), share.numel())));
  }
}

void check_gather_and_scatter(const Group& group, int64_t count) {
  const auto counts = uneven(count, group.size());
  const int root = group.size() / 2;
  const bool at_root = group.rank() == root;
  std::vector<at::Tensor> even, shares;
  for (int rank = 0; rank < group.size(); ++rank) {
    even.push_back(numbers(count, rank, at::kByte));
    shares.push_back(numbers(counts[rank], rank));
  }
  at::Tensor wide = at_root ? at::zeros({count * group.size()}, at::kByte) : at::Tensor();
  gather(wide, even[group.rank()], root, group).wait();
  at::Tensor back = at::zeros({count}, at::kByte);
  scatter(back, wide, root, group).wait();
  EXPECT_TRUE(at::equal(back, even[group.rank()]));
  if (at_root) {
    EXPECT_TRUE(at::equal(wide, at::cat(even)));
  }
  wide = at_root ? at::zeros({sum_of(counts)}) : at::Tensor();
  gather(wide, shares[group.rank()], counts, root, group).wait();
  back = at::zeros({counts[group.rank()]});
  scatter(back, wide, counts, root, group).wait();
  EXPECT_TRUE(at::equal(back, shares[group.rank()])) << "uneven";
  if (at_root) {
    EXPECT_TRUE(at::equal(wide, at::cat(shares))) << "uneven";
  }
}

void check_all_to_all(const Group& group, int64_t count) {
  const int n = group.size();
  std::vector<at::Tensor> due;
  for (int peer = 0; peer < n; ++peer) {
    due.push_back(numbers(n * count, peer).narrow(0, count * group.rank(), count));
  }
  at::Tensor input = numbers(n * count, group.rank());
  at::Tensor output = at::zeros_like(input);
  all_to_all(output, input, group).wait();
  EXPECT_TRUE(at::equal(output, at::cat(due)));
  all_to_all(input, input, group).wait();
  EXPECT_TRUE(at::equal(input, at::cat(due))) << "in place";
}

void check_uneven_all_to_all(const Group& group, int64_t count) {
  const int n = group.size();
  const auto counts = uneven(count, n * n);
  const auto row = [&](int rank) {
    return std::vector<int64_t>(counts.begin() + rank * n, counts.begin() + (rank + 1) * n);
  };
  std::vector<at::Tensor> due;
  for (int peer = 0; peer < n; ++peer) {
    const at::Tensor given = numbers(sum_of(row(peer)), peer, at::kLong);
    due.push_back(given.narrow(0, sum_of(row(peer), group.rank()), row(peer)[group.rank()]));
  }
  at::Tensor output = at::zeros_like(at::cat(due));
  all_to_all(output, numbers(sum_of(row(group.rank())), group.rank(), at::kLong), counts, group)
      .wait();
  EXPECT_TRUE(at::equal(output, at::cat(due)));
}

void check_messages(const Group& group, int64_t count) {
  const int n = group.size();
  if (n == 1) return;
  at::Tensor sum = at::ones({10});
  Work summed = group.rank() == 0 ? all_reduce(sum, group) : Work();  // beside the messages
  std::vector<Work> sent;
  for (int round = 0; round < 3; ++round) {
    const at::Tensor mine = numbers(count + round, group.rank());
    sent.push_back(send(mine, (group.rank() + 1) % n, group));
    at::Tensor theirs = at::zeros({count + round});
    const int before = (group.rank() + n - 1) % n;
    recv(theirs, before, group).wait();
    EXPECT_TRUE(at::equal(theirs, numbers(count + round, before)));
  }
  if (group.rank() != 0) summed = all_reduce(sum, group);
  for (Work& work : sent) work.wait();
  summed.wait();
  EXPECT_EQ(sum[9].item<float>(), n);
}

void check_calls_in_flight(const Group& group, int64_t count) {
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(at::full({count}, group.rank() + i));
    works.push_back(all_reduce(tensors[i], group));
  }
  barrier(group);
  const int n = group.size();
  for (int i = 7; i >= 0; --i) {
    works[i].wait();
    EXPECT_TRUE(at::equal(tensors[i], at::full({count}, n * i + n * (n - 1) / 2)));
  }
}

/// A routine as prepare() takes it, and the plain function; by a rank's tensors.
struct PreparedCase {
  schedule::Routine routine;
  std::vector<int64_t> counts;
  int64_t input, output;  // elements
  std::function<Work(at::Tensor&, const at::Tensor&)> plain;
};

std::vector<PreparedCase> prepared_cases(const Group& group, int64_t count) {
  const int root = group.size() - 1;
  const int64_t all = count * group.size();
  const std::vector<int64_t> shares = uneven(count, group.size());
  const int64_t mine = shares[group.rank()], of_all = sum_of(shares);
  using schedule::Routine;
  return {
      {Routine::kAllReduce,
       {count},
       count,
       count,
       [&](auto& to, auto& from) { return all_reduce(to, from, group); }},
      {Routine::kReduce,
       {count},
       count,
       count,
       [&, root](auto& to, auto& from) { return reduce(to, from, root, group); }},
      {Routine::kBroadcast,
       {count},
       count,
       count,
       [&, root](auto& to, auto& from) { return broadcast(to, from, root, group); }},
      {Routine::kAllGather,
       {count},
       count,
       all,
       [&](auto& to, auto& from) { return all_gather(to, from, group); }},
      {Routine::kAllGather, shares, mine, of_all,
       [&, shares](auto& to, auto& from) { return all_gather(to, from, shares, group); }},
      {Routine::kGather,
       {count},
       count,
       all,
       [&, root](auto& to, auto& from) { return gather(to, from, root, group); }},
      {Routine::kScatter, shares, of_all, mine,
       [&, shares, root](auto& to, auto& from) { return scatter(to, from, shares, root, group); }},
      {Routine::kReduceScatter,
       {count},
       all,
       count,
       [&](auto& to, auto& from) { return reduce_scatter(to, from, group); }},
      {Routine::kReduceScatter, shares, of_all, mine,
       [&, shares](auto& to, auto& from) { return reduce_scatter(to, from, shares, group); }},
      {Routine::kAllToAll,
       {count},
       all,
       all,
       [&](auto& to, auto& from) { return all_to_all(to, from, group); }},
  };
}

void check_prepared(const Group& group, int64_t count) {
  const int root = group.size() - 1;
  for (const PreparedCase& one : prepared_cases(group, count)) {
    SCOPED_TRACE(schedule::name_of(one.routine));
    Call call = prepare(one.routine, at::kFloat, one.counts, group, {.root = root});
    for (int start = 0; start < 3; ++start) {  // on other memory each time
      const at::Tensor input = rough(one.input, group.rank() + start, at::kFloat);
      at::Tensor prepared = at::zeros({one.output}), plain = at::zeros({one.output});
      const int64_t before = group.stats().wire_bytes + group.stats().network_bytes;
      one.plain(plain, input).wait();
      const int64_t between = group.stats().wire_bytes + group.stats().network_bytes;
      call.start(prepared, input).wait();
      const int64_t after = group.stats().wire_bytes + group.stats().network_bytes;
      EXPECT_TRUE(at::equal(prepared, plain));
      EXPECT_EQ(after - between, between - before);
    }
  }
  Call meet = prepare(schedule::Routine::kBarrier, at::kByte, {}, group);
  for (int start = 0; start < 3; ++start) meet.start().wait();
}

constexpr RoutineCase kCases[] = {
    {"all_reduce", check_all_reduce},
    {"bits of integers", check_bits_of_integers},
    {"order", check_order},
    {"tree over grains", check_tree},
    {"reduce", check_reduce},
    {"broadcast", check_broadcast},
    {"all_gather", check_all_gather},
    {"reduce_scatter", check_reduce_scatter},
    {"gather and scatter", check_gather_and_scatter},
    {"all_to_all", check_all_to_all},
    {"uneven all_to_all", check_uneven_all_to_all},
    {"messages", check_messages},
    {"calls in flight", check_calls_in_flight},
    {"prepared", check_prepared},
};

}  // namespace

std::span<const RoutineCase> routine_cases() { return kCases; }

void check_routines(const Group& group) {
  for (const RoutineCase& one : routine_cases()) {
    for (const int64_t count : {0, 1, 7, 3001}) {
      SCOPED_TRACE(testing::Message() << one.name << ", " << count << " elements, rank "
                                      << group.rank() << " of " << group.size());
      one.check(group, count);
    }
  }
}

}  // namespace hanji::comm::internal
