#include "hanji/test/routine_forms.h"

#include <stdexcept>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/reduce.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"
#include "hanji/schedule/send.h"

namespace hanji::test {
namespace {

using namespace schedule;

constexpr int64_t kFlat = 2;   // elements, in all of uneven shares some more
constexpr int64_t kMany = 90;  // two chunks

/// Uneven shares of n elements in all; one rank has none.
std::vector<int64_t> shares(int ranks, int64_t n) {
  switch (ranks) {
    case 2: return {n / 3, n - n / 3};
    case 3: return {n / 3, 0, n - n / 3};
    case 4: return {n / 3, 0, n / 4, n - n / 3 - n / 4};
    default: throw std::invalid_argument("forms for 2 to 4 ranks");
  }
}

/// What each rank gives to each: n elements in all.
std::vector<int64_t> pairs(int ranks, int64_t n) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks * ranks));
  counts[0] = n / 3;
  counts[ranks - 1] = 1;
  counts[ranks * (ranks - 1)] = 1;
  counts[2 * ranks - 1] += n - n / 3 - 2;
  return counts;
}

StepList grain_tree_list(int ranks, int64_t count) {
  std::vector<layout::Range> owners = {{0, 3}, {3, 7}};
  if (ranks == 3) owners = {{0, 3}, {3, 4}, {4, 7}};
  if (ranks == 4) owners = {{0, 2}, {2, 3}, {3, 5}, {5, 7}};
  return tree_all_reduce(grain_tree(7, owners), count);
}

std::vector<RoutineForm> even_forms(int r) {
  constexpr int64_t kChunk = kFormChunk;
  using N = int64_t;
  return {
      {"barrier", 0, [r](N, int) { return barrier(r); }},
      {"all_reduce_flat", kFlat, [r](N n, int) { return all_reduce_flat(r, n); }},
      {"all_reduce_direct", kMany, [r](N n, int) { return all_reduce_direct(r, n); }},
      {"all_reduce_staged", kMany, [r](N n, int) { return all_reduce_staged(r, n, kChunk); }},
      {"broadcast_flat", kFlat, [r](N n, int root) { return broadcast_flat(r, n, root); }},
      {"broadcast_direct", kMany, [r](N n, int root) { return broadcast_direct(r, n, root); }},
      {"broadcast_staged", kMany,
       [r](N n, int root) { return broadcast_staged(r, n, root, kChunk); }},
      {"all_gather_flat", kFlat, [r](N n, int) { return all_gather_flat(r, n); }},
      {"all_gather_direct", kMany, [r](N n, int) { return all_gather_direct(r, n); }},
      {"all_gather_staged", kMany, [r](N n, int) { return all_gather_staged(r, n, kChunk); }},
      {"reduce_scatter_flat", kFlat, [r](N n, int) { return reduce_scatter_flat(r, n); }},
      {"reduce_scatter_direct", kMany, [r](N n, int) { return reduce_scatter_direct(r, n); }},
      {"reduce_scatter_staged", kMany,
       [r](N n, int) { return reduce_scatter_staged(r, n, kChunk); }},
      {"reduce_flat", kFlat, [r](N n, int root) { return reduce_flat(r, n, root); }},
      {"reduce_direct", kMany, [r](N n, int root) { return reduce_direct(r, n, root); }},
      {"reduce_staged", kMany, [r](N n, int root) { return reduce_staged(r, n, root, kChunk); }},
      {"gather_flat", kFlat, [r](N n, int root) { return gather_flat(r, n, root); }},
      {"gather_direct", kMany, [r](N n, int root) { return gather_direct(r, n, root); }},
      {"gather_staged", kMany, [r](N n, int root) { return gather_staged(r, n, root, kChunk); }},
      {"scatter_flat", kFlat, [r](N n, int root) { return scatter_flat(r, n, root); }},
      {"scatter_direct", kMany, [r](N n, int root) { return scatter_direct(r, n, root); }},
      {"scatter_staged", kMany, [r](N n, int root) { return scatter_staged(r, n, root, kChunk); }},
      {"all_to_all_flat", kFlat, [r](N n, int) { return all_to_all_flat(r, n); }},
      {"all_to_all_direct", kMany, [r](N n, int) { return all_to_all_direct(r, n); }},
      {"all_to_all_swap", kMany, [r](N n, int) { return all_to_all_swap(r, n, kChunk); }},
      {"all_to_all_staged", kMany, [r](N n, int) { return all_to_all_staged(r, n, kChunk); }},
      {"grain_tree", kMany, [r](N n, int) { return grain_tree_list(r, n); }},
  };
}

std::vector<RoutineForm> uneven_forms(int r) {
  constexpr int64_t kFew = 4;
  constexpr int64_t kChunk = kFormChunk;
  using N = int64_t;
  return {
      {"uneven_all_gather_flat", kFew, [r](N n, int) { return all_gather_flat(shares(r, n)); }},
      {"uneven_all_gather_direct", kMany,
       [r](N n, int) { return all_gather_direct(shares(r, n)); }},
      {"uneven_all_gather_staged", kMany,
       [r](N n, int) { return all_gather_staged(shares(r, n), kChunk); }},
      {"uneven_reduce_scatter_flat", kFew,
       [r](N n, int) { return reduce_scatter_flat(shares(r, n)); }},
      {"uneven_reduce_scatter_direct", kMany,
       [r](N n, int) { return reduce_scatter_direct(shares(r, n)); }},
      {"uneven_reduce_scatter_staged", kMany,
       [r](N n, int) { return reduce_scatter_staged(shares(r, n), kChunk); }},
      {"uneven_gather_flat", kFew, [r](N n, int root) { return gather_flat(shares(r, n), root); }},
      {"uneven_gather_direct", kMany,
       [r](N n, int root) { return gather_direct(shares(r, n), root); }},
      {"uneven_gather_staged", kMany,
       [r](N n, int root) { return gather_staged(shares(r, n), root, kChunk); }},
      {"uneven_scatter_flat", kFew,
       [r](N n, int root) { return scatter_flat(shares(r, n), root); }},
      {"uneven_scatter_direct", kMany,
       [r](N n, int root) { return scatter_direct(shares(r, n), root); }},
      {"uneven_scatter_staged", kMany,
       [r](N n, int root) { return scatter_staged(shares(r, n), root, kChunk); }},
      {"uneven_all_to_all_flat", kFew, [r](N n, int) { return all_to_all_flat(r, pairs(r, n)); }},
      {"uneven_all_to_all_direct", kMany,
       [r](N n, int) { return all_to_all_direct(r, pairs(r, n)); }},
      {"uneven_all_to_all_staged", kMany,
       [r](N n, int) { return all_to_all_staged(r, pairs(r, n), kChunk); }},
  };
}

}  // namespace

std::vector<RoutineForm> routine_forms(int ranks) {
  std::vector<RoutineForm> forms = even_forms(ranks);
  for (RoutineForm& form : uneven_forms(ranks)) forms.push_back(std::move(form));
  return forms;
}

std::vector<RoutineForm> message_forms() {
  return {{"send_flat", kFlat, [](int64_t n, int) { return send_flat(n); }},
          {"send_direct", kMany, [](int64_t n, int) { return send_direct(n); }},
          {"send_staged", kMany, [](int64_t n, int) { return send_staged(n, kFormChunk); }}};
}

}  // namespace hanji::test
