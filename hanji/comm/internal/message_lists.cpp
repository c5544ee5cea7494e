#include "hanji/comm/internal/message_lists.h"

#include <algorithm>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/catalogue.h"
#include "hanji/schedule/linear.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/reorder.h"
#include "hanji/schedule/tree_exchange.h"

namespace hanji::comm {

namespace sc = schedule;
using sc::Routine;

namespace {

sc::StepList tree_from_root(const Request& request, int ranks, std::span<const int> order) {
  const auto all = sc::message_algorithms(Routine::kBroadcast);
  const auto tree = std::ranges::find(all, "binomial", &sc::Algorithm::name);
  return sc::make_in_order(*tree, ranks, request.count, {request.root}, order);
}

}  // namespace

Result<sc::StepList> message_list(const Request& request, int ranks, std::span<const int> order) {
  const int64_t count = request.count;
  const bool uneven = !request.counts.empty();
  switch (request.routine) {
    case Routine::kBarrier: {
      sc::StepList nothing;  // the comparison of the calls has made the ranks meet
      nothing.ranks = ranks;
      nothing.per_rank.resize(ranks);
      return nothing;
    }
    case Routine::kBroadcast: return tree_from_root(request, ranks, order);
    case Routine::kAllReduce: return sc::all_reduce_exchange(ranks, count);
    case Routine::kReduce: return sc::reduce_exchange(ranks, count, request.root);
    case Routine::kAllGather:
      return uneven ? sc::all_gather_linear(request.counts) : sc::all_gather_linear(ranks, count);
    case Routine::kReduceScatter:
      return uneven ? sc::reduce_scatter_exchange(request.counts)
                    : sc::reduce_scatter_exchange(ranks, count);
    case Routine::kGather:
      return uneven ? sc::gather_linear(request.counts, request.root)
                    : sc::gather_linear(ranks, count, request.root);
    case Routine::kScatter:
      return uneven ? sc::scatter_linear(request.counts, request.root)
                    : sc::scatter_linear(ranks, count, request.root);
    case Routine::kAllToAll:
      if (uneven) return sc::all_to_all_linear(ranks, request.counts);
      return request.in_place ? sc::all_to_all_linear_in_place(ranks, count)
                              : sc::all_to_all_linear(ranks, count);
    case Routine::kSend: return sc::send_message(count);
    case Routine::kTreeReduce: return sc::tree_exchange(request.steps->owners, count);
  }
  return base::internal("unknown routine");
}

}  // namespace hanji::comm
