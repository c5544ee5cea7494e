#pragma once

#include <cstdint>
#include <vector>

namespace hanji::layout {

/// What one rank multiplies at one step of a ring, where blocks of keys and values pass to the rank before.
struct RingStep {
  int owner = 0;            ///< Of the block that is here.
  int64_t first_query = 0;  ///< Of this rank's queries, which meet it from there on.
  int64_t num_keys = 0;     ///< Of the block's, from the front.
  bool is_own = false;      ///< Triangular: queries and keys are the same tokens, ascending.
  bool receives = false;    ///< The next block comes meanwhile: at every step but the last.
};

/// The steps of `rank` under a causal mask, of tokens that lie as context_tokens(kRing) says. Of an earlier
/// rank's block all queries meet the front range; of a later rank's all of it meets the back queries.
std::vector<RingStep> ring_steps(int64_t tokens, int rank, int ranks);

}  // namespace hanji::layout
