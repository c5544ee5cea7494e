#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "hanji/schedule/check.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/internal/address_map.h"
#include "hanji/schedule/internal/limits.h"

namespace hanji::schedule {
namespace {

using namespace internal;

Status out_of_bounds(std::string message) { return base::invalid_argument(std::move(message)); }

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Status check_counts(const StepList& list) {
  if (list.counts.empty()) return {};
  if (!has_shares(list.routine)) {
    return out_of_bounds(fmt::format("{} has no counts per rank", name_of(list.routine)));
  }
  const int64_t per_rank = list.routine == Routine::kAllToAll ? list.ranks : 1;
  if (list.counts.size() != static_cast<size_t>(list.ranks * per_rank)) {
    return out_of_bounds(fmt::format("{} counts for {} ranks", list.counts.size(), list.ranks));
  }
  int64_t sum = 0;
  for (const int64_t count : list.counts) {
    if (count < 0 || count > kMaxElements - sum) return out_of_bounds("counts are out of range");
    sum += count;
  }
  if (sum == list.count) return {};
  return out_of_bounds(fmt::format("counts of {} in all, and count says {}", sum, list.count));
}

Status check_header(const StepList& list) {
  if (list.ranks < 1 || list.ranks > kMaxRanks) {
    return out_of_bounds(fmt::format("{} ranks; a list has 1 to {}", list.ranks, kMaxRanks));
  }
  if (!list.kept.is_whole()) {
    return base::invalid_argument(
        fmt::format("only the steps of rank {} are kept; make the whole list", list.kept.rank));
  }
  if (list.per_rank.size() != static_cast<size_t>(list.ranks)) {
    return out_of_bounds(fmt::format("steps for {} of {} ranks", list.per_rank.size(), list.ranks));
  }
  if (!is_name(list.algorithm))
    return out_of_bounds("the algorithm's name is not 1 to 32 of a-z 0-9 _");
  if (list.count < 0 || list.count > kMaxElements / list.ranks) {
    return out_of_bounds(fmt::format("count {} is out of range", list.count));
  }
  if (list.slot_elements < 0 || list.slot_elements > kMaxElements) {
    return out_of_bounds(fmt::format("slot_elements {} is out of range", list.slot_elements));
  }
  if (list.root < 0 || list.root >= (has_root(list.routine) ? list.ranks : 1)) {
    return out_of_bounds(fmt::format("root {} is out of range", list.root));
  }
  if (list.parameter < 0) return out_of_bounds("a parameter is not negative");
  HANJI_RETURN_IF_ERROR(check_counts(list));
  if (list.routine == Routine::kSend && list.ranks != 2)
    return out_of_bounds("a send has two ranks");
  if (list.routine == Routine::kBarrier && list.count != 0)
    return out_of_bounds("a barrier has no count");
  if (list.routine != Routine::kTreeReduce) {
    return list.owners.empty() ? Status() : out_of_bounds("only a tree_reduce has owners");
  }
  if (list.owners.size() != static_cast<size_t>(list.ranks)) {
    return out_of_bounds(fmt::format("owners for {} of {} ranks", list.owners.size(), list.ranks));
  }
  return check_owners(list.owners.back().end, list.owners);
}

class StepBounds {
 public:
  explicit StepBounds(const StepList& list) : list_(list), parts_(parts_per_rank(list)) {
    for (int rank = 0; rank < list.ranks; ++rank) {
      inputs_.push_back(elements_of(list, rank, Place::kInput));
      outputs_.push_back(elements_of(list, rank, Place::kOutput));
    }
  }

  Status check(int rank, const Step& step) const {
    if (step.kind == StepKind::kSync) {
      const bool bare = step == Step{};
      return bare ? Status() : out_of_bounds("a sync has no operands");
    }
    if (step.count < 1 || step.count > kMaxElements) {
      return out_of_bounds(fmt::format("count {} is out of range", step.count));
    }
    HANJI_RETURN_IF_ERROR(check_shape(rank, step));
    for (const Operand& operand : step.from) HANJI_RETURN_IF_ERROR(check_operand(operand, step));
    for (const Operand& operand : step.to) {
      HANJI_RETURN_IF_ERROR(check_operand(operand, step));
      if (operand.place == Place::kInput) return out_of_bounds("an input is read only");
    }
    return {};
  }

 private:
  Status check_shape(int rank, const Step& step) const;
  Status check_operand(const Operand& operand, const Step& step) const;
  static Status check_tree(const Step& step);
  int64_t size_of(const Operand& operand) const {
    if (operand.place == Place::kInput) return inputs_[operand.rank];
    return operand.place == Place::kOutput ? outputs_[operand.rank] : list_.slot_elements;
  }

  const StepList& list_;
  const std::vector<int> parts_;
  std::vector<int64_t> inputs_, outputs_;  // elements, by rank
};

Status StepBounds::check_shape(int rank, const Step& step) const {
  const bool sends = step.kind == StepKind::kSend;
  if (sends || step.kind == StepKind::kRecv) {
    const auto& own = sends ? step.from : step.to;
    const auto& none = sends ? step.to : step.from;
    if (own.size() != 1 || !none.empty() || own[0].rank != rank || !step.tree.empty()) {
      return out_of_bounds("a send or recv has one operand, of its own rank");
    }
    if (step.peer < 0 || step.peer >= list_.ranks || step.peer == rank) {
      return out_of_bounds(fmt::format("peer {} is not another rank", step.peer));
    }
    return {};
  }
  if (step.peer != -1 || step.joined)
    return out_of_bounds("only a send or recv has a peer or is joined");
  if (step.from.empty() || step.to.empty()) return out_of_bounds("a step without operands");
  if (step.from.size() + step.to.size() > kMaxOperands) return out_of_bounds("too many operands");
  if (step.kind != StepKind::kCopy) return check_tree(step);
  if (step.from.size() != 1) return out_of_bounds("a copy has one source");
  return step.tree.empty() ? Status() : out_of_bounds("only a reduce or combine has a tree");
}

// Every source is pushed once, nothing is combined that is not there, one value is left.
Status StepBounds::check_tree(const Step& step) {
  std::vector<bool> pushed(step.from.size());
  int depth = 0;
  for (const int value : step.tree) {
    if (value == -1) {
      if (--depth < 1) return out_of_bounds("the tree combines what is not there");
      continue;
    }
    if (value < 0 || static_cast<size_t>(value) >= pushed.size() || pushed[value]) {
      return out_of_bounds(
          fmt::format("the tree pushes {} of {} sources, each once", value, step.from.size()));
    }
    pushed[value] = true;
    ++depth;
  }
  const bool all = step.tree.size() == 2 * step.from.size() - 1;
  return depth == 1 && all ? Status() : out_of_bounds("the tree leaves out a source");
}

Status StepBounds::check_operand(const Operand& operand, const Step& step) const {
  if (operand.rank < 0 || operand.rank >= list_.ranks) {
    return out_of_bounds(fmt::format("rank {} of {}", operand.rank, list_.ranks));
  }
  const int parts = operand.place == Place::kInput ? parts_[operand.rank] : 1;
  if (operand.part < 0 || operand.part >= parts) {
    return out_of_bounds(fmt::format("part {} of {}", operand.part, parts));
  }
  const int64_t size = size_of(operand);
  if (operand.begin < 0 || operand.begin > size || step.count > size - operand.begin) {
    return out_of_bounds(fmt::format("{} elements from {} of rank {}'s {}, which has {}",
                                     step.count, operand.begin, operand.rank,
                                     name_of(operand.place), size));
  }
  return {};
}

}  // namespace

Status check_bounds(const StepList& list) {
  HANJI_RETURN_IF_ERROR(check_header(list));
  int64_t num_steps = 0;
  const StepBounds bounds(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const auto& steps = list.per_rank[rank];
    num_steps += static_cast<int64_t>(steps.size());
    if (num_steps > kMaxSteps) return out_of_bounds(fmt::format("more than {} steps", kMaxSteps));
    for (size_t i = 0; i < steps.size(); ++i) {
      Status status = bounds.check(rank, steps[i]);
      if (status.ok() && steps[i].joined && (i == 0 || !is_message(steps[i - 1].kind))) {
        status = out_of_bounds("is joined to a step that is neither send nor recv");
      }
      if (!status.ok()) return status.at(fmt::format("rank {}, step {}", rank, i));
    }
  }
  return {};
}

}  // namespace hanji::schedule
