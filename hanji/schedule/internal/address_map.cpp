#include "hanji/schedule/internal/address_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "hanji/schedule/internal/partials.h"

namespace hanji::schedule::internal {
namespace {

// The two ranks whose accesses seen so far reach furthest.
class Furthest {
 public:
  void add(int rank, int64_t end) {
    if (rank == best_[0].rank) {
      best_[0].end = std::max(best_[0].end, end);
    } else if (end > best_[0].end) {
      best_[1] = best_[0];
      best_[0] = {rank, end};
    } else if (end > best_[1].end) {
      best_[1] = {rank, end};
    }
  }

  // A rank other than `rank` that reaches beyond `begin`, or -1.
  int beyond(int64_t begin, int rank) const {
    const Reach& other = best_[best_[0].rank == rank];
    return other.end > begin ? other.rank : -1;
  }

 private:
  struct Reach {
    int rank = -1;
    int64_t end = -1;
  };
  std::array<Reach, 2> best_;
};

}  // namespace

std::vector<int> parts_per_rank(const StepList& list) {
  std::vector<int> parts(list.ranks, list.routine == Routine::kBarrier ? 0 : 1);
  if (list.routine != Routine::kTreeReduce) return parts;
  const GrainTree tree = partial_tree(list.owners.back().end, list.owners);
  for (int rank = 0; rank < list.ranks; ++rank) {
    parts[rank] = static_cast<int>(tree.ranks[rank].partials.size());
  }
  return parts;
}

AddressMap::AddressMap(const StepList& list, std::vector<int> parts_of_rank, Aliasing aliasing)
    : parts_(std::move(parts_of_rank)) {
  for (const int parts : parts_) {
    first_space_.push_back(num_spaces_);
    num_spaces_ += parts + 3;
  }
  if (aliasing == Aliasing::kSeparate) return;
  const bool nested = has_shares(list.routine) && list.routine != Routine::kAllToAll;
  const auto blocks = nested ? blocks_of(list, 0, Place::kInput) : std::vector<layout::Range>();
  for (int rank = 0; rank < list.ranks; ++rank) {
    nestings_.push_back({list.routine == Routine::kAllGather || list.routine == Routine::kGather,
                         nested ? blocks[rank].begin : 0});
  }
}

Address AddressMap::locate(const Operand& operand) const {
  const int inputs = first_space_[operand.rank];
  const int others = inputs + parts_[operand.rank];
  const bool in_place = !nestings_.empty() && parts_[operand.rank] > 0;
  const Nesting nesting = in_place ? nestings_[operand.rank] : Nesting();
  switch (operand.place) {
    case Place::kInput:
      if (nesting.output_is_wide) return {others, nesting.begin + operand.begin};
      return {inputs + operand.part, operand.begin};
    case Place::kOutput:
      if (!in_place || nesting.output_is_wide) return {others, operand.begin};
      return {inputs, nesting.begin + operand.begin};
    case Place::kSlot: return {others + 1, operand.begin};
    case Place::kResult: return {others + 2, operand.begin};
  }
  return {};
}

Status check_races(std::vector<Access>& accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::tie(a.at.space, a.at.begin) < std::tie(b.at.space, b.at.begin);
  });
  Furthest writes, all;
  int space = -1;
  for (const Access& access : accesses) {
    if (access.at.space != space) {
      writes = all = Furthest();
      space = access.at.space;
    }
    const int other = (access.write ? all : writes).beyond(access.at.begin, access.rank);
    if (other >= 0) {
      return base::invalid_argument(fmt::format(
          "ranks {} and {} touch element {} of one buffer between two syncs and one of them "
          "writes; put a sync between",
          std::min(access.rank, other), std::max(access.rank, other), access.at.begin));
    }
    all.add(access.rank, access.end);
    if (access.write) writes.add(access.rank, access.end);
  }
  return {};
}

}  // namespace hanji::schedule::internal
