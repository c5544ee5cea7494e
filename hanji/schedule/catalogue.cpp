#include "hanji/schedule/catalogue.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "hanji/base/status.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/binomial.h"
#include "hanji/schedule/bruck.h"
#include "hanji/schedule/double_tree.h"
#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/formula.h"
#include "hanji/schedule/internal/limits.h"
#include "hanji/schedule/pipeline.h"
#include "hanji/schedule/recursive.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/ring.h"

namespace hanji::schedule {
namespace {

using Shape = ListShape;
constexpr auto kBroadcast = Routine::kBroadcast;
constexpr auto kAllGather = Routine::kAllGather;
constexpr auto kReduceScatter = Routine::kReduceScatter;
constexpr auto kAllReduce = Routine::kAllReduce;
constexpr auto kReduce = Routine::kReduce;
constexpr auto kGather = Routine::kGather;
constexpr auto kScatter = Routine::kScatter;
constexpr auto kAllToAll = Routine::kAllToAll;

// Makers of (ranks, count), of (ranks, count, root), and of what is symmetric, as Algorithm::make.
template <StepList (*make)(int, int64_t)>
StepList plain(int ranks, int64_t count, const Shape&) {
  return make(ranks, count);
}
template <StepList (*make)(int, int64_t, Kept)>
StepList symmetric(int ranks, int64_t count, const Shape& shape) {
  return make(ranks, count, shape.kept);
}
template <StepList (*make)(int, int64_t, int)>
StepList rooted(int ranks, int64_t count, const Shape& shape) {
  return make(ranks, count, shape.root);
}

StepList chain(int ranks, int64_t count, const Shape& shape) {
  return broadcast_chain(ranks, count, shape.root, shape.segments, shape.kept);
}
StepList scatter_all_gather(int ranks, int64_t count, const Shape& shape) {
  return broadcast_scatter_all_gather(ranks, count, shape.root, shape.kept);
}
StepList double_tree_down(int ranks, int64_t count, const Shape& shape) {
  return broadcast_double_tree(ranks, count, shape.root, shape.segments);
}
StepList double_tree_both(int ranks, int64_t count, const Shape& shape) {
  return all_reduce_double_tree(ranks, count, shape.segments);
}
StepList hierarchical(int ranks, int64_t count, const Shape& shape) {
  return all_reduce_hierarchical(ranks, count, shape.ranks_per_host, shape.kept);
}

// Of each: is_pipelined, is_hierarchical, is_symmetric.
constexpr Algorithm kAll[] = {
    {kBroadcast, "one_by_one", "(p-1) (a + S b)", false, false, false,
     rooted<broadcast_one_by_one>},
    {kBroadcast, "all_at_once", "a + (p-1) S b", false, false, false,
     rooted<broadcast_all_at_once>},
    {kBroadcast, "binomial", "log2(p) (a + S b)", false, false, false, rooted<broadcast_binomial>},
    {kBroadcast, "chain", "(p-2+k) (a + S/k b)", true, false, true, chain},
    {kBroadcast, "scatter_all_gather", "(log2(p)+p-1) a + 2 (p-1)/p S b", false, false, true,
     scatter_all_gather},
    {kBroadcast, "double_tree", "(log2(p)+k-1) (a + S/k b)", true, false, false, double_tree_down},
    {kAllGather, "ring", "(p-1) (a + S/p b)", false, false, true, symmetric<all_gather_ring>},
    {kAllGather, "bruck", "log2(p) a + (p-1)/p S b", false, false, true,
     symmetric<all_gather_bruck>},
    {kReduceScatter, "exchange", "p (a + S/p b)", false, false, true,
     symmetric<reduce_scatter_exchange>},
    {kReduceScatter, "ring", "(p-1) (a + S/p b)", false, false, true,
     symmetric<reduce_scatter_ring>},
    {kReduceScatter, "recursive_halving", "log2(p) a + (p-1)/p S b", false, false, true,
     symmetric<reduce_scatter_recursive_halving>},
    {kAllReduce, "exchange", "2 p (a + S/p b)", false, false, true, symmetric<all_reduce_exchange>},
    {kAllReduce, "ring", "2 (p-1) (a + S/p b)", false, false, true, symmetric<all_reduce_ring>},
    {kAllReduce, "reduce_broadcast", "2 log2(p) (a + S b)", false, false, false,
     plain<all_reduce_reduce_broadcast>},
    {kAllReduce, "recursive_doubling", "log2(p) (a + S b)", false, false, true,
     symmetric<all_reduce_recursive_doubling>},
    {kAllReduce, "rabenseifner", "2 log2(p) a + 2 (p-1)/p S b", false, false, true,
     symmetric<all_reduce_rabenseifner>},
    {kAllReduce, "double_tree", "2 (log2(p)+k-1) (a + S/k b)", true, false, false,
     double_tree_both},
    {kAllReduce, "hierarchical", "2 (l+h-2) a + 2 (p-1)/p S b, p = l h", false, true, true,
     hierarchical},
    {kReduce, "binomial", "log2(p) (a + S b)", false, false, false, rooted<reduce_binomial>},
    {kGather, "binomial", "log2(p) a + (p-1)/p S b", false, false, false, rooted<gather_binomial>},
    {kScatter, "binomial", "log2(p) a + (p-1)/p S b", false, false, false,
     rooted<scatter_binomial>},
    {kAllToAll, "pairwise", "(p-1) (a + S/p b)", false, false, true,
     symmetric<all_to_all_pairwise>},
    {kAllToAll, "bruck", "log2(p) (a + S/2 b)", false, false, true, symmetric<all_to_all_bruck>},
};

}  // namespace

int64_t num_steps(const Algorithm& algorithm, int ranks, int64_t count, const ListShape& shape) {
  StepList list = internal::open_list(algorithm.routine, std::string(algorithm.name), ranks, count);
  if (has_root(algorithm.routine)) internal::set_root(list, shape.root);
  if (algorithm.is_pipelined) list.parameter = shape.segments;
  if (algorithm.is_hierarchical) {
    internal::require(shape.ranks_per_host >= 1 && ranks % shape.ranks_per_host == 0,
                      "a hierarchy needs ranks per host that divide the ranks");
    list.parameter = shape.ranks_per_host;
  }
  const auto totals = internal::formula(list);
  if (!totals) throw Error(base::internal("no formula of " + list.algorithm));
  return totals->steps;
}

int64_t max_count(int ranks) { return internal::kMaxElements / ranks; }

std::span<const Algorithm> message_algorithms() { return kAll; }

std::vector<Algorithm> message_algorithms(Routine routine) {
  std::vector<Algorithm> found;
  std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(found),
               [routine](const Algorithm& one) { return one.routine == routine; });
  return found;
}

}  // namespace hanji::schedule
