#include "hanji/schedule/internal/formula.h"

#include <algorithm>

#include "hanji/layout/shard.h"
#include "hanji/schedule/internal/address_map.h"

namespace hanji::schedule::internal {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return b == 0 ? 0 : a / b + (a % b != 0); }

// Slices of m elements over p ranks that are not empty.
int64_t full_slices(int64_t m, int64_t p) {
  return ceil_div(m, layout::shard_size(m, static_cast<int>(p)));
}

// p ranks, N elements, slots of `slot` elements; `any` is 1 unless N = 0.
struct Size {
  int64_t p, N, slot, any;
};

std::optional<Totals> all_reduce(const std::string& name, Size size) {
  const auto [p, N, slot, any] = size;
  const int64_t full = full_slices(N, p);
  const int64_t wire = 2 * (p - 1) * N;
  if (name == "flat")
    return Totals{1, p + 2 * p * any, (p + 1) * p * N, 2 * p * N, p * (p - 1) * N};
  if (name == "direct") return Totals{2, 2 * p + full, p * N, p * N, wire};
  if (name == "exchange") {
    return Totals{0, (4 * (p - 1) + 1) * full, (3 * p - 2) * N, (2 * p - 1) * N, wire};
  }
  if (name != "staged") return std::nullopt;
  // A chunk of f slices: p-1 pieces before and f-1 behind an own slice, f reduces, (p-1) f copies.
  const auto steps = [p](int64_t f) { return 2 * p + (p - 1) + (f - 1) + f + (p - 1) * f; };
  const int64_t chunks = ceil_div(N, slot);
  const int64_t last = N - std::max<int64_t>(0, chunks - 1) * slot;
  int64_t num_steps = p;
  if (chunks > 0) {
    num_steps += (chunks - 1) * steps(full_slices(slot, p)) + steps(full_slices(last, p));
  }
  return Totals{1 + 2 * chunks, num_steps, (3 * p - 2) * N, (2 * p - 1 + (p > 1)) * N, wire};
}

std::optional<Totals> broadcast(const std::string& name, Size size, int root) {
  const auto [p, N, slot, any] = size;
  if (name == "flat") return Totals{1, p + p * any, p * N, (p + 1) * N, (p - 1) * N};
  if (name == "direct") {
    const int64_t own = layout::shard_range(N, static_cast<int>(p), root).size();
    return Totals{2, 2 * p + full_slices(N, p), N, p * N, (p - 1) * N + N - own};
  }
  if (name != "staged") return std::nullopt;
  const int64_t chunks = ceil_div(N, slot / 2);
  return Totals{1 + chunks, p * (1 + chunks) + p * chunks, p * N, (p + 1) * N, (p - 1) * N};
}

std::optional<Totals> all_gather(const std::string& name, Size size) {
  const auto [p, N, slot, any] = size;
  const int64_t wire = p * (p - 1) * N, through = (p + 1) * p * N;
  if (name == "flat") return Totals{1, p + (p + p * p) * any, through, through, wire};
  if (name == "direct") return Totals{2, 2 * p + p * any, p * N, p * p * N, wire};
  if (name != "staged") return std::nullopt;
  const int64_t chunks = ceil_div(N, slot / 2);
  return Totals{1 + chunks, p * (1 + chunks) + (p + p * p) * chunks, through, through, wire};
}

std::optional<Totals> reduce_scatter(const std::string& name, Size size) {
  const auto [p, N, slot, any] = size;
  const int64_t wire = p * (p - 1) * N;
  if (name == "flat") {
    return Totals{1, p + 2 * p * any, 2 * p * p * N, (p + 1) * p * N, wire};
  }
  if (name == "direct") return Totals{2, 2 * p + p * any, p * p * N, p * N, wire};
  const int64_t read = (2 * p - 1) * p * N, written = p * p * N;
  if (name == "exchange") return Totals{0, (2 * (p - 1) + 1) * p * any, read, written, wire};
  if (name != "staged") return std::nullopt;
  const int64_t chunks = ceil_div(N, slot / (2 * p));
  return Totals{1 + chunks, p * (1 + chunks) + p * p * chunks, read, written, wire};
}

std::optional<Totals> tree_reduce(const StepList& list, Size size) {
  if (list.algorithm != "direct") return std::nullopt;
  const auto [p, N, slot, any] = size;
  int64_t partials = 0, own_reads = 0;
  const std::vector<int> parts = parts_per_rank(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    partials += parts[rank];
    own_reads += parts[rank] * layout::shard_range(N, list.ranks, rank).size();
  }
  return Totals{2, 2 * p + full_slices(N, p), partials * N, p * N,
                partials * N - own_reads + (p - 1) * N};
}

}  // namespace

Totals count_totals(const StepList& list) {
  Totals totals;
  totals.syncs = num_syncs(list);
  for (int rank = 0; rank < list.ranks; ++rank) {
    const Traffic traffic = traffic_of(list, rank);
    totals.steps += static_cast<int64_t>(list.per_rank[rank].size());
    totals.read += traffic.read;
    totals.written += traffic.written;
    totals.wire += traffic.wire;
  }
  return totals;
}

std::optional<Totals> formula(const StepList& list) {
  const Size size{list.ranks, list.count, list.slot_elements, list.count > 0};
  switch (list.routine) {
    case Routine::kBarrier:
      if (list.algorithm != "sync") return std::nullopt;
      return Totals{1, size.p, 0, 0, 0};
    case Routine::kBroadcast: return broadcast(list.algorithm, size, list.root);
    case Routine::kAllGather: return all_gather(list.algorithm, size);
    case Routine::kReduceScatter: return reduce_scatter(list.algorithm, size);
    case Routine::kAllReduce: return all_reduce(list.algorithm, size);
    case Routine::kTreeReduce: return tree_reduce(list, size);
  }
  return std::nullopt;
}

}  // namespace hanji::schedule::internal
