#include "hanji/schedule/internal/formula.h"

#include <algorithm>

#include "hanji/layout/shard.h"
#include "hanji/schedule/internal/address_map.h"
#include "hanji/schedule/internal/message_formula.h"

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
  const auto steps = [p](int64_t f) { return p + (p - 1) + (f - 1) + f + (p - 1) * f; };
  const int64_t chunk = slot / 2;
  const int64_t chunks = ceil_div(N, chunk);
  const int64_t last = N - std::max<int64_t>(0, chunks - 1) * chunk;
  int64_t num_steps = p * (1 + any);
  if (chunks > 0) {
    num_steps += (chunks - 1) * steps(full_slices(chunk, p)) + steps(full_slices(last, p));
  }
  return Totals{1 + any + chunks, num_steps, (3 * p - 2) * N, (2 * p - 1 + (p > 1)) * N, wire};
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

std::optional<Totals> reduce(const std::string& name, Size size, int root) {
  const auto [p, N, slot, any] = size;
  const int64_t read = (2 * p - 1) * N, wire = (p - 1) * N;
  if (name == "flat") return Totals{1, p + p * any, read, p * N, wire};
  if (name == "direct") {
    const int64_t own = layout::shard_range(N, static_cast<int>(p), root).size();
    return Totals{2, 2 * p + full_slices(N, p), p * N, N, wire + N - own};
  }
  if (name != "staged") return std::nullopt;
  const int64_t chunks = ceil_div(N, slot / 2);
  return Totals{1 + chunks, p * (1 + chunks) + p * chunks, read, p * N, wire};
}

// Blocks of which those that a rank has for itself (`own`), or the root's, count apart.
struct Blocks {
  int64_t p = 0;
  int64_t all = 0, own = 0;  // elements
  int64_t num = 0;           // not empty
  int64_t chunks = 0;        // of the largest
  int64_t pieces = 0, own_pieces = 0;

  void add(int64_t size, bool is_own, int64_t chunk) {
    const int64_t num_pieces = ceil_div(size, chunk);
    all += size;
    own += is_own ? size : 0;
    num += size > 0;
    chunks = std::max(chunks, num_pieces);
    pieces += num_pieces;
    own_pieces += is_own ? num_pieces : 0;
  }
};

// The shares of all ranks; slots hold `per_slot` chunks.
Blocks shares(const StepList& list, int64_t per_slot) {
  Blocks blocks{.p = list.ranks};
  const auto ranges = blocks_of(list, 0, Place::kInput);
  for (int rank = 0; rank < list.ranks; ++rank) {
    blocks.add(ranges[rank].size(), rank == list.root, list.slot_elements / per_slot);
  }
  return blocks;
}

std::optional<Totals> all_gather(const StepList& list) {
  const Blocks b = shares(list, 2);
  const int64_t p = b.p, wire = (p - 1) * b.all, through = (p + 1) * b.all;
  if (list.algorithm == "flat") return Totals{1, p + (1 + p) * b.num, through, through, wire};
  if (list.algorithm == "direct") return Totals{2, 2 * p + b.num, b.all, p * b.all, wire};
  if (list.algorithm != "staged") return std::nullopt;
  return Totals{1 + b.chunks, p * (1 + b.chunks) + (1 + p) * b.pieces, through, through, wire};
}

std::optional<Totals> reduce_scatter(const StepList& list) {
  const Blocks b = shares(list, int64_t{2} * list.ranks);
  const int64_t p = b.p, wire = (p - 1) * b.all;
  const int64_t any = b.all > 0;
  const int64_t read = (2 * p - 1) * b.all, written = p * b.all;
  if (list.algorithm == "flat") {
    return Totals{1, p + p * any + b.num, 2 * p * b.all, (p + 1) * b.all, wire};
  }
  if (list.algorithm == "direct") return Totals{2, 2 * p + b.num, p * b.all, b.all, wire};
  if (list.algorithm == "exchange") {
    return Totals{0, (2 * (p - 1) + 1) * b.num, read, written, wire};
  }
  if (list.algorithm != "staged") return std::nullopt;
  return Totals{1 + b.chunks, p * (1 + b.chunks) + p * b.pieces, read, written, wire};
}

std::optional<Totals> gather(const StepList& list) {
  const Blocks b = shares(list, 2);
  const int64_t p = b.p, twice = 2 * b.all - b.own, wire = b.all - b.own;
  const int64_t own = b.own > 0;
  if (list.algorithm == "flat") return Totals{1, p + 2 * b.num - own, twice, twice, wire};
  if (list.algorithm == "direct") return Totals{2, 2 * p + b.num, b.all, b.all, wire};
  if (list.algorithm != "staged") return std::nullopt;
  return Totals{1 + b.chunks, p * (1 + b.chunks) + 2 * b.pieces - b.own_pieces, twice, twice, wire};
}

std::optional<Totals> scatter(const StepList& list) {
  const Blocks b = shares(list, int64_t{2} * list.ranks);
  const int64_t p = b.p, twice = 2 * b.all - b.own, wire = b.all - b.own;
  const int64_t any = b.all > 0;
  if (list.algorithm == "flat") {
    return Totals{1, p + any + b.num, 2 * b.all, 2 * b.all, wire};
  }
  if (list.algorithm == "direct") return Totals{2, 2 * p + b.num, b.all, b.all, wire};
  if (list.algorithm != "staged") return std::nullopt;
  return Totals{1 + b.chunks, p * (1 + b.chunks) + 2 * b.pieces - b.own_pieces, twice, twice, wire};
}

// Every pair of ranks swaps two blocks in two halves, three copies of a chunk at a time.
Totals all_to_all_swap(Size size) {
  const auto [p, N, slot, any] = size;
  int64_t chunks = 0;
  for (const int half : {0, 1}) chunks += ceil_div(layout::shard_range(N, 2, half).size(), slot);
  const int64_t pairs = p * (p - 1) / 2;
  const int64_t moved = p * N + 3 * pairs * N;
  return {2, 2 * p + p * any + 3 * pairs * chunks, moved, moved, 2 * pairs * N};
}

std::optional<Totals> all_to_all(const StepList& list, Size size) {
  if (list.algorithm == "swap") return all_to_all_swap(size);
  Blocks b{.p = list.ranks};
  int64_t givers = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const auto given = blocks_of(list, rank, Place::kInput);
    givers += given.back().end > 0;
    for (int peer = 0; peer < list.ranks; ++peer) {
      b.add(given[peer].size(), peer == rank, list.slot_elements / (2 * b.p));
    }
  }
  const int64_t p = b.p, twice = 2 * b.all - b.own, wire = b.all - b.own;
  if (list.algorithm == "flat") {
    return Totals{1, p + givers + b.num, 2 * b.all, 2 * b.all, wire};
  }
  if (list.algorithm == "direct") return Totals{2, 2 * p + b.num, b.all, b.all, wire};
  if (list.algorithm != "staged") return std::nullopt;
  return Totals{1 + b.chunks, p * (1 + b.chunks) + 2 * b.pieces - b.own_pieces, twice, twice, wire};
}

std::optional<Totals> send(const std::string& name, Size size) {
  const auto [p, N, slot, any] = size;
  if (name == "flat") return Totals{1, p + 2 * any, 2 * N, 2 * N, N};
  if (name == "direct") return Totals{2, 2 * p + any, N, N, N};
  if (name != "staged") return std::nullopt;
  const int64_t chunks = ceil_div(N, slot / 2);
  return Totals{1 + chunks, p * (1 + chunks) + 2 * chunks, 2 * N, 2 * N, N};
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
  if (const auto totals = message_formula(list)) return totals;
  const Size size{list.ranks, list.count, list.slot_elements, list.count > 0};
  switch (list.routine) {
    case Routine::kBarrier:
      if (list.algorithm != "sync") return std::nullopt;
      return Totals{1, size.p, 0, 0, 0};
    case Routine::kBroadcast: return broadcast(list.algorithm, size, list.root);
    case Routine::kAllGather: return all_gather(list);
    case Routine::kReduceScatter: return reduce_scatter(list);
    case Routine::kReduce: return reduce(list.algorithm, size, list.root);
    case Routine::kGather: return gather(list);
    case Routine::kScatter: return scatter(list);
    case Routine::kAllToAll: return all_to_all(list, size);
    case Routine::kSend: return send(list.algorithm, size);
    case Routine::kAllReduce: return all_reduce(list.algorithm, size);
    case Routine::kTreeReduce: return tree_reduce(list, size);
  }
  return std::nullopt;
}

}  // namespace hanji::schedule::internal
