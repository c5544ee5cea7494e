#include "hanji/comm/internal/choose.h"

#include <fmt/format.h>

#include "hanji/cost/select.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/reduce_scatter.h"

namespace hanji::comm {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

std::shared_ptr<const schedule::StepList> share(schedule::StepList list) {
  return std::make_shared<const schedule::StepList>(std::move(list));
}

/// True if two algorithms may leave different bits.
bool order_shows(const Request& request) {
  if (request.routine != Routine::kAllReduce && request.routine != Routine::kReduceScatter) {
    return false;
  }
  const bool rounds =
      is_floating(request.dtype) && request.op != ReduceOp::kMin && request.op != ReduceOp::kMax;
  return rounds || request.op == ReduceOp::kAvg;
}

Result<Choice> exchange(const Request& request, int ranks) {
  if (request.routine == Routine::kAllReduce) {
    return Choice{share(schedule::all_reduce_exchange(ranks, request.count)), nullptr};
  }
  return Choice{share(schedule::reduce_scatter_exchange(ranks, request.count)), nullptr};
}

cost::Query query_of(const Request& request, int ranks) {
  return {.routine = request.routine,
          .element_bytes = static_cast<int64_t>(size_of(request.dtype)),
          .ranks = ranks,
          .count = request.count,
          .root = request.root,
          .counts = request.counts,
          .in_place = request.in_place};
}

}  // namespace

Result<Choice> choose(const Request& request, const Engine& engine, Bits bits,
                      cost::Chooser& chooser) {
  if (request.steps && !engine.shares_memory() && engine.size() > 1) {
    return base::unsupported(
        fmt::format("{}: engine {} cannot run it, because peers cannot map each other's buffers; "
                    "use a group over shared memory",
                    schedule::name_of(request.routine), engine.name()));
  }
  if (request.steps) return Choice{request.steps, nullptr};
  if (engine.shares_memory()) {
    const cost::Selection& selection = chooser.select(query_of(request, engine.size()));
    return Choice{selection.in_heap, selection.if_private};
  }
  if (!request.counts.empty()) {
    return base::unsupported(
        fmt::format("engine {} has no {} with counts per rank; use a group "
                    "over shared memory",
                    engine.name(), schedule::name_of(request.routine)));
  }
  if (bits == Bits::kRun && order_shows(request)) return exchange(request, engine.size());
  if (!engine.native(request.routine)) {
    return base::unsupported(fmt::format("engine {} has no {}; use a group over shared memory",
                                         engine.name(), schedule::name_of(request.routine)));
  }
  return Choice{};
}

}  // namespace hanji::comm
