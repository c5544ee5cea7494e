#include "hanji/report/bench_case.h"

#include <algorithm>

namespace hanji::report {

using schedule::Routine;

int64_t count_of(const BenchCase& call) {
  if (call.routine == Routine::kBarrier) return 0;
  const auto width = static_cast<int64_t>(base::size_of(call.dtype));
  return call.bytes / width / (has_shares(call.routine) ? call.ranks : 1);
}

int64_t size_of(const BenchCase& call) {
  const auto width = static_cast<int64_t>(base::size_of(call.dtype));
  return count_of(call) * width * (has_shares(call.routine) ? call.ranks : 1);
}

bool has_in_place(Routine routine) { return routine != Routine::kSend; }

bool has_out_of_place(Routine routine) {
  return has_shares(routine) || routine == Routine::kReduce || routine == Routine::kSend;
}

double least_traffic(const BenchCase& call) {
  const auto size = static_cast<double>(size_of(call));
  const double ranks = call.ranks;
  const double others = ranks - 1;
  switch (call.routine) {
    case Routine::kAllReduce: return 2 * ranks * size;
    case Routine::kReduce:
    case Routine::kReduceScatter: return (ranks + 1) * size;
    case Routine::kAllGather: return (call.in_place ? ranks : ranks + 1) * size;
    case Routine::kAllToAll: return 2 * (call.in_place ? others : ranks) * size;
    case Routine::kBroadcast: return ranks * size;
    case Routine::kGather:
    case Routine::kScatter: return 2 * (call.in_place ? others / ranks : 1) * size;
    case Routine::kSend: return 2 * size;
    default: return 0;
  }
}

double bus_factor(Routine routine, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  if (routine == Routine::kAllReduce) return 2 * share;
  return has_shares(routine) ? share : 1;
}

cost::Query query_of(const BenchCase& call) {
  return {.routine = call.routine,
          .element_bytes = static_cast<int64_t>(base::size_of(call.dtype)),
          .ranks = call.routine == Routine::kSend ? 2 : call.ranks,
          .count = count_of(call),
          .root = has_root(call.routine) ? call.root : 0,
          .in_place = call.routine == Routine::kAllToAll && call.in_place,
          .dtype = call.dtype};
}

BenchBuffers buffers_of(const BenchCase& call, int rank) {
  const int64_t share = count_of(call);
  const int64_t all = share * call.ranks;
  const bool is_root = rank == call.root;
  switch (call.routine) {
    case Routine::kAllReduce:
    case Routine::kBroadcast: return {share, share, 0};
    case Routine::kReduce: return {share, is_root ? share : 0, 0};
    case Routine::kAllGather: return {share, all, rank * share};
    case Routine::kGather:
      return is_root ? BenchBuffers{share, all, rank * share} : BenchBuffers{share, 0, 0};
    case Routine::kReduceScatter: return {all, share, rank * share};
    case Routine::kScatter:
      return is_root ? BenchBuffers{all, share, rank * share} : BenchBuffers{0, share, 0};
    case Routine::kAllToAll: return {all, all, 0};
    case Routine::kSend:
      return {is_root ? share : 0, rank == (call.root + 1) % call.ranks ? share : 0, 0};
    default: return {};
  }
}

std::vector<int64_t> sizes_of(const SizeRange& range) {
  std::vector<int64_t> sizes;
  for (int64_t size = range.first; size <= range.last;
       size = range.step > 0 ? size + range.step : size * range.factor) {
    sizes.push_back(size);
    if (range.step <= 0 && (range.factor < 2 || size == 0)) break;
  }
  return sizes;
}

}  // namespace hanji::report
