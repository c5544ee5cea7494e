#include "hanji/schedule/internal/message_formula.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "hanji/schedule/internal/address_map.h"
#include "hanji/schedule/internal/builder.h"
#include "hanji/schedule/internal/folding.h"

namespace hanji::schedule::internal {
namespace {

/// Steps and elements of a part of a list; parts add up.
struct Part {
  int64_t steps = 0, read = 0, written = 0, wire = 0;
};

Part operator+(Part a, Part b) {
  return {a.steps + b.steps, a.read + b.read, a.written + b.written, a.wire + b.wire};
}

Totals totals(Part part) { return {0, part.steps, part.read, part.written, part.wire}; }

// `messages` of `elements` in all: a send and a recv each.
Part moved(int64_t messages, int64_t elements) {
  return {2 * messages, elements, elements, elements};
}
// The same, and each is added to a part of the receiver.
Part added(int64_t messages, int64_t elements) {
  return moved(messages, elements) + Part{messages, 2 * elements, elements, 0};
}
Part copied(int64_t copies, int64_t elements) { return {copies, elements, elements, 0}; }

// Slices of m elements over p parts that are not empty.
int64_t full(int64_t m, int64_t p) {
  if (p < 1) return 0;
  const int64_t size = m / p + (m % p != 0);
  return size == 0 ? 0 : m / size + (m % size != 0);
}

int64_t log2_ceil(int64_t p) { return std::bit_width(static_cast<uint64_t>(p - 1)); }

// p ranks, N elements, `any` is 1 unless N = 0.
struct MessageSize {
  int64_t p, N, any;
};

Part broadcast_tail(MessageSize size) { return copied(size.any, size.N); }

// Slice r makes a hop for every split between the root and rank r: one where their numbers first
// differ, and one for every one bit of r below it.
int64_t scattered_elements(int64_t N, int p, int root) {
  int64_t elements = 0;
  for (int rank = 0; rank < p; ++rank) {
    const auto apart = static_cast<unsigned>(rank ^ root);
    if (apart == 0) continue;
    const unsigned below = std::bit_floor(apart) - 1;
    const int hops = 1 + std::popcount(static_cast<unsigned>(rank) & below);
    elements += hops * slice_of(N, p, rank).size();
  }
  return elements;
}

Part ring_reduce(int64_t N, int64_t p) { return added(full(N, p) * (p - 1), N * (p - 1)); }
Part ring_gather(int64_t N, int64_t p) { return moved(full(N, p) * (p - 1), N * (p - 1)); }

std::optional<Part> broadcast(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  const std::string& name = list.algorithm;
  const int64_t messages = (p - 1) * any, elements = (p - 1) * N;
  if (name == "binomial" || name == "one_by_one" || name == "all_at_once") {
    return moved(messages, elements) + broadcast_tail(size);
  }
  if (name == "chain") {
    return moved((p - 1) * full(N, list.parameter), elements) + broadcast_tail(size);
  }
  if (name == "scatter_all_gather") {
    const int64_t slices = full(N, p) - (list.root < full(N, p));
    return moved(slices, scattered_elements(N, list.ranks, list.root)) + ring_gather(N, p) +
           broadcast_tail(size);
  }
  if (name != "double_tree") return std::nullopt;
  const int64_t segments = full(slice_of(N, 2, 0).size(), list.parameter) +
                           full(slice_of(N, 2, 1).size(), list.parameter);
  return moved((p - 1) * segments, elements) + broadcast_tail(size);
}

// Who passes on in a tree over p - 1 ranks: every second; and the root. Each adds what arrives
// from its children in one step.
Part double_tree_all_reduce(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  Part part;
  for (const int half : {0, 1}) {
    const int64_t elements = slice_of(N, 2, half).size();
    const int64_t segments = full(elements, list.parameter), sums = (p - 1) / 2 + 1;
    part = part + moved(2 * (p - 1) * segments, 2 * (p - 1) * elements) +
           Part{sums * segments, (sums + p - 1) * elements, sums * elements, 0};
  }
  return part;
}

// In the exchange over `distance` places every slice is sent by `width` places; messages hold
// `width` slices, of which the last may be empty.
Part rabenseifner(MessageSize size) {
  const auto [p, N, any] = size;
  const Folding folding(static_cast<int>(p));
  const int64_t slices = full(N, folding.core);
  int64_t messages = 0;
  for (int64_t width = folding.core / 2; width >= 1; width /= 2) {
    messages += width * ((slices + width - 1) / width);
  }
  const int64_t elements = N * (folding.core - 1), extra = folding.extra;
  return added(messages, elements) + moved(messages, elements) + added(extra * any, extra * N) +
         moved(extra * any, extra * N);
}

std::optional<Part> hierarchical(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  if (list.parameter < 1 || p % list.parameter != 0) return std::nullopt;
  const int64_t inside = list.parameter, hosts = p / inside;
  Part part;
  for (int64_t host = 0; host < hosts; ++host) {
    part = part + ring_reduce(N, inside) + ring_gather(N, inside);
  }
  for (int i = 0; i < inside; ++i) {
    const int64_t slice = slice_of(N, list.parameter, i).size();
    part = part + ring_reduce(slice, hosts) + ring_gather(slice, hosts);
  }
  return part;
}

std::optional<Part> all_reduce(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  const std::string& name = list.algorithm;
  const bool is_named = name == "ring" || name == "reduce_broadcast" || name == "double_tree" ||
                        name == "recursive_doubling" || name == "rabenseifner" ||
                        name == "hierarchical";
  if (!is_named) return std::nullopt;
  if (p == 1) return copied(any, N);  // one reduce of one source
  if (name == "ring") return ring_reduce(N, p) + ring_gather(N, p);
  if (name == "reduce_broadcast") {
    return added((p - 1) * any, (p - 1) * N) + moved((p - 1) * any, (p - 1) * N);
  }
  if (name == "double_tree") return double_tree_all_reduce(list, size);
  if (name == "rabenseifner") return rabenseifner(size);
  if (name == "hierarchical") return hierarchical(list, size);
  const Folding folding(list.ranks);
  const int64_t exchanged = folding.core * log2_ceil(folding.core);
  return added((exchanged + folding.extra) * any, (exchanged + folding.extra) * N) +
         moved(folding.extra * any, folding.extra * N);
}

std::optional<Part> reduce_scatter(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  if (list.algorithm != "ring" && list.algorithm != "recursive_halving") return std::nullopt;
  if (p == 1) return copied(any, N);
  if (list.algorithm == "ring") return added(p * (p - 1) * any, p * (p - 1) * N);
  const Folding folding(list.ranks);
  const int64_t exchanged = folding.core * log2_ceil(folding.core), extra = folding.extra;
  // A place that stands for a pair makes its two last sums in two steps.
  return added((exchanged + extra) * any, p * N * (folding.core - 1 + extra)) +
         moved(extra * any, extra * N) + Part{extra * any, 0, 0, 0};
}

// Ranks but the root that speak for others: x stands for as many as its lowest bit says, or the
// first bit in which it differs from the root.
int64_t num_speakers(int p, int root) {
  int64_t speakers = 0;
  for (int rank = 0; rank + 1 < p; ++rank) {
    const auto apart = static_cast<unsigned>(rank ^ root);
    if (apart == 0) continue;
    const unsigned first = std::bit_floor(apart), below = static_cast<unsigned>(rank) & (first - 1);
    const unsigned block = below == 0 ? first : below & -below;
    speakers += block > 1;
  }
  return speakers;
}

// Gather, and scatter backwards: shares move as in scattered_elements(); speakers copy their own.
Part binomial_shares(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  const int64_t copies = 1 + num_speakers(list.ranks, list.root);
  return copied(copies * any, copies * N) +
         moved((p - 1) * any, scattered_elements(p * N, list.ranks, list.root));
}

std::optional<Part> all_to_all(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  if (list.algorithm == "pairwise") {
    return copied(p * any, p * N) + moved(p * (p - 1) * any, p * (p - 1) * N);
  }
  if (list.algorithm != "bruck") return std::nullopt;
  Part part = copied((2 * p - 1) * any, p * p * N) + copied(p * p * any, p * p * N);
  for (int64_t bit = 1; bit < p; bit *= 2) {
    int64_t runs = 0, blocks = 0;
    for (int64_t begin = bit; begin < p; begin += 2 * bit) {
      ++runs;
      blocks += std::min(bit, p - begin);
    }
    part = part + copied(2 * p * runs * any, 2 * p * blocks * N) + moved(p * any, p * blocks * N);
  }
  return part;
}

std::optional<Part> all_gather(const StepList& list, MessageSize size) {
  const auto [p, N, any] = size;
  if (list.algorithm == "ring") {
    return copied(p * any, p * N) + moved(p * (p - 1) * any, p * (p - 1) * N);
  }
  if (list.algorithm != "bruck") return std::nullopt;
  return copied(p * any, p * N) + moved(p * log2_ceil(p) * any, p * (p - 1) * N) +
         copied((2 * p - 1) * any, p * p * N);
}

// A block that has elements makes its way in one message, or in a copy where its owner gets it.
std::optional<Part> linear_blocks(const StepList& list) {
  Part part;
  const bool is_rooted = has_root(list.routine);
  for (int rank = 0; rank < list.ranks; ++rank) {
    if (is_rooted && rank != list.root) continue;
    const Place wide = list.routine == Routine::kAllGather || list.routine == Routine::kGather
                           ? Place::kOutput
                           : Place::kInput;
    const auto blocks = blocks_of(list, rank, wide);
    for (int owner = 0; owner < list.ranks; ++owner) {
      const int64_t size = blocks[owner].size(), any = size > 0;
      part = part + (owner == rank ? copied(any, size) : moved(any, size));
    }
  }
  return part;
}

// All slices but the own one go to who sums them, and all but the root's one from there.
Part reduce_exchange(const StepList& list) {
  Part part;
  for (int rank = 0; rank < list.ranks; ++rank) {
    const int64_t size = slice_of(list.count, list.ranks, rank).size(), any = size > 0;
    part = part + moved((list.ranks - 1) * any, (list.ranks - 1) * size) +
           Part{any, list.ranks * size, size, 0};
    if (rank != list.root) part = part + moved(any, size);
  }
  return part;
}

// All slices of partials but the own ones go to who combines them, and the sums back to all.
Part tree_exchange(const StepList& list) {
  Part part;
  const std::vector<int> parts = parts_per_rank(list);
  const int64_t all = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (int rank = 0; rank < list.ranks; ++rank) {
    const int64_t size = slice_of(list.count, list.ranks, rank).size(), any = size > 0;
    const int64_t messages = all - parts[rank] + list.ranks - 1;
    part = part + moved(messages * any, messages * size) + Part{any, all * size, size, 0};
  }
  return part;
}

std::optional<Part> linear(const StepList& list) {
  const int64_t p = list.ranks, N = list.count, any = N > 0;
  if (list.algorithm == "linear" && has_shares(list.routine)) return linear_blocks(list);
  if (list.routine == Routine::kAllToAll && list.algorithm == "linear_in_place") {
    return copied(p * p * any, p * p * N) + moved(p * (p - 1) * any, p * (p - 1) * N);
  }
  if (list.routine == Routine::kReduce && list.algorithm == "exchange") {
    return reduce_exchange(list);
  }
  if (list.routine == Routine::kTreeReduce && list.algorithm == "exchange") {
    return tree_exchange(list);
  }
  if (list.routine == Routine::kSend && list.algorithm == "message") return moved(any, N);
  return std::nullopt;
}

}  // namespace

std::optional<Totals> message_formula(const StepList& list) {
  if (const auto part = linear(list)) return totals(*part);
  if (!list.counts.empty()) return std::nullopt;  // none of the others is uneven
  const MessageSize size{list.ranks, list.count, list.count > 0};
  std::optional<Part> part;
  switch (list.routine) {
    case Routine::kBroadcast: part = broadcast(list, size); break;
    case Routine::kAllReduce: part = all_reduce(list, size); break;
    case Routine::kReduceScatter: part = reduce_scatter(list, size); break;
    case Routine::kAllGather: part = all_gather(list, size); break;
    case Routine::kAllToAll: part = all_to_all(list, size); break;
    case Routine::kReduce:
      if (list.algorithm != "binomial") break;
      part = size.p == 1 ? copied(size.any, size.N)
                         : added((size.p - 1) * size.any, (size.p - 1) * size.N);
      break;
    case Routine::kGather:
    case Routine::kScatter:
      if (list.algorithm == "binomial") part = binomial_shares(list, size);
      break;
    default: break;
  }
  return part ? std::optional(totals(*part)) : std::nullopt;
}

}  // namespace hanji::schedule::internal
