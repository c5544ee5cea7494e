#include "hanji/plan/server_plan.h"

#include <algorithm>

#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{4} << 20;

std::vector<layout::Range> one_each(int ranks) {
  std::vector<layout::Range> owners;
  for (int rank = 0; rank < ranks; ++rank) owners.push_back({rank, rank + 1});
  return owners;
}

}  // namespace

ServerPlan serve_model(const std::vector<int64_t>& sizes, int64_t element_bytes, int ranks,
                       const std::vector<layout::Range>& owners) {
  ServerPlan plan{.shares = {},
                  .flat = layout::flat_layout(sizes),
                  .element_bytes = element_bytes,
                  .parts = {}};
  plan.shares =
      layout::cut_at_blocks(layout::server_shares(plan.flat.count, ranks).or_throw(), plan.flat);
  const auto& sums = owners.empty() ? one_each(ranks) : owners;
  const schedule::GrainTree tree = schedule::grain_tree(sums.back().end, sums);
  for (const auto& fold : tree.ranks) plan.parts.push_back(static_cast<int>(fold.partials.size()));
  plan.num_partials = std::ssize(tree.partials);
  return plan;
}

int64_t message_bytes(const CommConfig& comm) {
  return std::min(comm.bucket_bytes, kMaxMessageBytes);
}

std::vector<MemoryLine> server_lines(const ServerPlan& plan, int rank, int64_t num_buffers,
                                     int64_t bytes_per_message) {
  const int64_t all = plan.flat.count * plan.element_bytes;
  const int64_t range = plan.shares.range_of(rank).size() * plan.element_bytes;
  const int64_t message =
      std::min(bytes_per_message / plan.element_bytes * plan.element_bytes, range);
  return {{"parameters", all},
          {"gradients", num_buffers * all + range},
          {"staging", 2 * plan.num_partials * message},
          {"optimizer", rank == 0 ? 2 * all : 0}};
}

}  // namespace hanji::plan
