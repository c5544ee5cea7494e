#pragma once

#include <cstdint>
#include <vector>

#include "hanji/cost/rates.h"
#include "hanji/cost/simulate.h"
#include "hanji/layout/context.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

struct Plan;

/// What one way of mesh.cp costs a layer, forward and backward, on so many samples.
struct ContextCost {
  ContextWay way = ContextWay::kUlysses;
  int64_t forward_bytes = 0;  ///< That all ranks together send.
  int64_t backward_bytes = 0;
  double transfer_seconds = 0;
  double attention_seconds = 0;  ///< An estimate, of the rank that multiplies most.
  double seconds() const { return transfer_seconds + attention_seconds; }
};

/// Both ways, the cheaper one first; one where the other does not serve: Ulysses needs a head for each rank, a
/// ring two tokens. Sums of gradients are counted in float32 or wider.
std::vector<ContextCost> compare_context(const layout::ContextAttention& attention, int64_t samples,
                                         int64_t element_bytes, const cost::Rates& rates);
/// The same of ranks that send on links of a network, each one message at a time.
std::vector<ContextCost> compare_context(const layout::ContextAttention& attention, int64_t samples,
                                         int64_t element_bytes, const cost::Network& network);
/// Of the layers of a plan, by its micro-batch and rates; empty without mesh.cp.
std::vector<ContextCost> compare_context(const Plan& plan);

/// The way of a configuration: auto as far as it says without rates, a ring for fewer heads than ranks.
ContextWay context_way(const Config& config);
/// Tokens of a sample on each rank of mesh.cp: with train.cuts.tokens above 1 whole blocks of them.
std::vector<int64_t> context_extents(const Config& config);
/// Whether it leaves both ways to the rates.
bool leaves_context_open(const Config& config);

}  // namespace hanji::plan
