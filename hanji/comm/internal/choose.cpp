#include "hanji/comm/internal/choose.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "hanji/comm/internal/message_lists.h"
#include "hanji/cost/choose_messages.h"
#include "hanji/cost/select.h"

namespace hanji::comm {
namespace {

using schedule::ReduceOp;

/// True if two algorithms may leave different bits.
bool order_shows(const Request& request) {
  if (!schedule::reduces(request.routine)) return false;
  const bool rounds =
      is_floating(request.dtype) && request.op != ReduceOp::kMin && request.op != ReduceOp::kMax;
  return rounds || request.op == ReduceOp::kAvg;
}

/// Elements that the algorithms of other engines may not know, or mean something else by.
bool only_ours(const Request& request) {
  const bool known = request.dtype <= DType::kUInt8;
  return schedule::reduces(request.routine) && !known;
}

cost::Query query_of(const Request& request, int ranks) {
  return {.routine = request.routine,
          .element_bytes = static_cast<int64_t>(size_of(request.dtype)),
          .ranks = ranks,
          .count = request.count,
          .root = request.root,
          .counts = request.counts,
          .in_place = request.in_place,
          .dtype = request.dtype};
}

/// Below this a broadcast is bound by latency, and the binomial tree is the answer without asking.
constexpr int64_t kWorthAsking = 64 << 10;

/// Whether lists are compared by price: where one was named, and for large broadcasts. Of ordered
/// sums the exchange is the cheapest that is bound by bandwidth, and what hierarchies count on.
bool is_priced(const Request& request, std::string_view named) {
  if (!request.counts.empty()) return false;
  if (request.routine == schedule::Routine::kAllToAll && request.in_place) return false;
  const auto bytes = request.count * static_cast<int64_t>(size_of(request.dtype));
  return !named.empty() ||
         (request.routine == schedule::Routine::kBroadcast && bytes >= kWorthAsking);
}

/// The named list, or the cheapest over links of which nothing is known.
Result<schedule::StepList> priced_list(const Request& request, const Engine& engine, bool ordered,
                                       cost::Chooser& chooser) {
  cost::MessageQuery query;
  query.query = query_of(request, engine.size());
  query.order.assign(engine.order().begin(), engine.order().end());
  query.needs_order = ordered;
  query.network = cost::kAssumedNetwork;
  query.named = chooser.named(request.routine);
  return chooser.select_messages(query);
}

}  // namespace

Result<Choice> choose(const Request& request, const Engine& engine, Bits bits,
                      cost::Chooser& chooser) {
  if (request.steps && engine.shares_memory()) return Choice{request.steps, nullptr};
  if (request.steps && !engine.device().is_cpu()) {
    return base::unsupported(fmt::format("{}: engine {} cannot run it; use a group of CPU tensors",
                                         schedule::name_of(request.routine), engine.name()));
  }
  if (engine.shares_memory()) {
    const cost::Selection& selection = chooser.select(query_of(request, engine.size()));
    return Choice{selection.in_heap, selection.if_private};
  }
  if (request.op == ReduceOp::kPremulSum && schedule::reduces(request.routine)) {
    return base::unsupported(fmt::format(
        "{}(premul_sum): engine {} sums partial sums; multiply the tensor and reduce by "
        "sum, or use a group over shared memory",
        schedule::name_of(request.routine), engine.name()));
  }
  if (engine.delegates()) return Choice{};
  const Shares shares = request.counts.empty() ? Shares::kEven : Shares::kUneven;
  // A tree over grains keeps its order in every mode.
  const bool ordered = request.steps != nullptr || (bits == Bits::kRun && order_shows(request)) ||
                       only_ours(request);
  const bool bits_alone =
      reduces(request.routine) && is_bitwise(request.op) && !engine.combines_bits();
  const bool native = !ordered && !bits_alone && engine.native(request.routine, shares);
  const std::string_view named = chooser.named(request.routine);
  if (named.empty() && native) return Choice{};
  HANJI_ASSIGN_OR_RETURN(schedule::StepList list,
                         is_priced(request, named)
                             ? priced_list(request, engine, ordered, chooser)
                             : message_list(request, engine.size(), engine.order()));
  return Choice{std::make_shared<const schedule::StepList>(std::move(list)), nullptr};
}

}  // namespace hanji::comm
