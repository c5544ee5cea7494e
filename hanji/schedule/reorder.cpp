#include "hanji/schedule/reorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace hanji::schedule {
namespace {

Status check_order(std::span<const int> order, int ranks) {
  std::vector<bool> seen(static_cast<size_t>(ranks));
  for (const int rank : order) {
    if (rank < 0 || rank >= ranks || seen[static_cast<size_t>(rank)]) {
      return base::invalid_argument(fmt::format(
          "an order of {} ranks has {} out of place; name each rank once", ranks, rank));
    }
    seen[static_cast<size_t>(rank)] = true;
  }
  if (order.size() == static_cast<size_t>(ranks)) return {};
  return base::invalid_argument(fmt::format(
      "an order of {} ranks names {} of them; name each rank once", ranks, order.size()));
}

bool is_rooted(Routine routine) {
  return routine == Routine::kBroadcast || routine == Routine::kReduce ||
         routine == Routine::kGather || routine == Routine::kScatter;
}

// Whether the place has the shares of all ranks, one after another.
bool is_wide(Routine routine, Place place) {
  switch (routine) {
    case Routine::kAllGather:
    case Routine::kGather: return place == Place::kOutput;
    case Routine::kReduceScatter:
    case Routine::kScatter: return place == Place::kInput;
    case Routine::kAllToAll: return place == Place::kInput || place == Place::kOutput;
    default: return false;
  }
}

// Gives steps of one rank to another.
class Mover {
 public:
  Mover(const StepList& list, std::span<const int> order) : list_(list), order_(order) {}

  Status move(std::vector<Step>& steps, int from_rank) const {
    for (Step& step : steps) {
      for (auto* operands : {&step.from, &step.to}) {
        for (Operand& one : *operands) {
          if (one.rank != from_rank) return unsupported("has a rank touch memory of another");
          HANJI_RETURN_IF_ERROR(move(one, step.count));
        }
      }
      if (step.peer >= 0) step.peer = order_[static_cast<size_t>(step.peer)];
    }
    return {};
  }

 private:
  Status move(Operand& one, int64_t count) const {
    one.rank = order_[static_cast<size_t>(one.rank)];
    if (!is_wide(list_.routine, one.place) || count == 0) return {};
    const int64_t share = one.begin / list_.count;
    const int64_t offset = one.begin % list_.count;
    if (offset + count > list_.count) return unsupported("moves several shares at once");
    one.begin = order_[static_cast<size_t>(share)] * list_.count + offset;
    return {};
  }

  Status unsupported(std::string_view why) const {
    return base::unsupported(
        fmt::format("{} {} {}, so its ranks cannot change places; name another algorithm, or keep "
                    "the ranks in order",
                    name_of(list_.routine), list_.algorithm, why));
  }

  const StepList& list_;
  const std::span<const int> order_;
};

}  // namespace

bool is_by_rank(std::span<const int> order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) return false;
  }
  return true;
}

Result<StepList> reorder(const StepList& list, std::span<const int> order) {
  HANJI_RETURN_IF_ERROR(check_order(order, list.ranks));
  if (is_by_rank(order)) return list;
  if (!list.counts.empty()) {
    return base::unsupported(fmt::format("{} {} has uneven shares, which stay in order",
                                         name_of(list.routine), list.algorithm));
  }
  StepList result = list;
  const Mover mover(list, order);
  for (int rank = 0; rank < list.ranks; ++rank) {
    std::vector<Step> steps = list.per_rank[static_cast<size_t>(rank)];
    HANJI_RETURN_IF_ERROR(mover.move(steps, rank));
    result.per_rank[static_cast<size_t>(order[static_cast<size_t>(rank)])] = std::move(steps);
  }
  if (is_rooted(list.routine)) result.root = order[static_cast<size_t>(list.root)];
  if (reduces(list.routine)) result.keeps_order = false;
  return result;
}

StepList make_in_order(const Algorithm& algorithm, int ranks, int64_t count, const ListShape& shape,
                       std::span<const int> order) {
  if (is_by_rank(order)) return algorithm.make(ranks, count, shape);
  base::throw_if_error(check_order(order, ranks));
  ListShape along = shape;
  const auto root = std::ranges::find(order, shape.root);
  if (root == order.end()) return algorithm.make(ranks, count, shape);  // refuses the root
  along.root = static_cast<int>(root - order.begin());
  Result<StepList> list = reorder(algorithm.make(ranks, count, along), order);
  return list.ok() ? *std::move(list) : algorithm.make(ranks, count, shape);
}

}  // namespace hanji::schedule
