#include "hanji/layout/recompute.h"

#include <algorithm>
#include <limits>
#include <string>

#include "hanji/base/units.h"

namespace hanji::layout {
namespace {

constexpr int64_t kUnits = int64_t{1} << 16;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// By units that the blocks so far hold: the least cost.
using Costs = std::vector<double>;

/// What a block does to the units that are held, and to the cost.
struct Move {
  int64_t held = 0;
  int64_t needed = 0;  ///< While it is recomputed, beyond what was held before it.
  double flops = 0;
};

/// Takes the cheaper of two moves for every number of units; says where the second one was.
Costs advance(const Costs& costs, const Move& keep, const Move& again, std::vector<bool>& chosen) {
  const auto size = static_cast<int64_t>(costs.size());
  Costs next(costs.size(), kNever);
  const auto take = [&](const Move& move, bool is_again) {
    for (int64_t held = 0; held + std::max(move.held, move.needed) < size; ++held) {
      const auto to = static_cast<size_t>(held + move.held);
      const double cost = costs[static_cast<size_t>(held)] + move.flops;
      if (cost >= next[to]) continue;
      next[to] = cost;
      chosen[to] = is_again;
    }
  };
  take(keep, false);
  take(again, true);
  return next;
}

}  // namespace

int64_t peak_bytes(std::span<const BlockCost> blocks, const std::vector<bool>& recomputed) {
  int64_t held = 0, peak = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    held += recomputed[i] ? blocks[i].input_bytes : blocks[i].kept_bytes;
    peak = std::max(peak, held + (recomputed[i] ? blocks[i].kept_bytes : 0));
  }
  return peak;
}

Result<RecomputeChoice> choose_recomputed(std::span<const BlockCost> blocks, int64_t budget_bytes) {
  for (const BlockCost& block : blocks) {
    if (block.kept_bytes >= 0 && block.input_bytes >= 0 && block.flops >= 0) continue;
    return base::invalid_argument("recomputation: a block of " + std::to_string(block.kept_bytes) +
                                  " bytes kept and " + std::to_string(block.input_bytes) +
                                  " of input; give bytes and flops of 0 or more");
  }
  const int64_t unit = std::max<int64_t>(1, (budget_bytes + kUnits - 1) / kUnits);
  const auto units = [&](int64_t bytes) { return (bytes + unit - 1) / unit; };
  const auto size = static_cast<size_t>(std::max<int64_t>(budget_bytes / unit, 0) + 1);
  Costs costs(size, kNever);
  costs[0] = 0;
  std::vector<Move> keeps, agains;
  std::vector<std::vector<bool>> chosen;
  for (const BlockCost& block : blocks) {
    const int64_t kept = units(block.kept_bytes), input = units(block.input_bytes);
    keeps.push_back({kept, 0, 0});
    agains.push_back({input, input + kept, block.flops});
    chosen.emplace_back(size);
    costs = advance(costs, keeps.back(), agains.back(), chosen.back());
  }
  const auto best = std::min_element(costs.begin(), costs.end());
  if (*best == kNever) {
    std::vector<bool> all(blocks.size(), true);
    if (!all.empty()) all.back() = false;  // its backward comes at once
    return base::out_of_memory("recomputation: " + base::format_bytes(budget_bytes) +
                               " are not enough; with all blocks but the last recomputed they "
                               "need " +
                               base::format_bytes(peak_bytes(blocks, all)) +
                               ": give that much, or take smaller micro-batches or blocks");
  }
  RecomputeChoice choice{std::vector<bool>(blocks.size()), 0, *best};
  int64_t held = best - costs.begin();
  for (size_t i = blocks.size(); i-- > 0;) {
    choice.recomputed[i] = chosen[i][static_cast<size_t>(held)];
    held -= choice.recomputed[i] ? agains[i].held : keeps[i].held;
  }
  choice.peak_bytes = peak_bytes(blocks, choice.recomputed);
  return choice;
}

}  // namespace hanji::layout
