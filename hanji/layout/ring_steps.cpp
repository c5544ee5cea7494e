#include "hanji/layout/ring_steps.h"

#include "hanji/layout/context.h"

namespace hanji::layout {

std::vector<RingStep> ring_steps(int64_t tokens, int rank, int ranks) {
  const auto front_of = [&](int other) {
    return context_tokens(tokens, other, ranks, ContextWay::kRing)[0].size();
  };
  const std::vector<int64_t> extents = context_extents(tokens, ranks, ContextWay::kRing);
  std::vector<RingStep> steps;
  for (int step = 0; step < ranks; ++step) {
    RingStep& one = steps.emplace_back();
    one.owner = (rank + step) % ranks;
    one.is_own = step == 0;
    one.first_query = one.owner > rank ? front_of(rank) : 0;
    one.num_keys = one.owner < rank ? front_of(one.owner) : extents[one.owner];
    one.receives = step + 1 < ranks;
  }
  return steps;
}

}  // namespace hanji::layout
