#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/cost/select.h"
#include "hanji/schedule/operation.h"

namespace hanji::report {

/// One call that a benchmark times, as nccl-tests would count it.
struct BenchCase {
  schedule::Routine routine = schedule::Routine::kAllReduce;
  /// Of the largest buffer of one rank: all shares together where there are shares.
  int64_t bytes = 0;
  DType dtype = DType::kFloat32;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  int root = 0;  ///< Of send: who sends, to the next rank.
  int ranks = 1;
  bool in_place = true;
};

/// Elements as schedule::StepList counts them: of a share where there are shares. Rounded down.
int64_t count_of(const BenchCase& call);
/// Bytes of the largest buffer that the call really has: `bytes`, rounded down to whole shares.
int64_t size_of(const BenchCase& call);

/// Whether the routine has a form in place, and one out of place, among the calls of `comm`.
bool has_in_place(schedule::Routine routine);
bool has_out_of_place(schedule::Routine routine);

/// The least bytes that all ranks together read and write, N = size_of(), p ranks: all_reduce 2pN;
/// all_gather, reduce_scatter, reduce (p+1)N; all_to_all 2pN; broadcast pN; gather, scatter and
/// send 2N; in place less what stays where it is. Lies in cache or memory as the buffers do.
double least_traffic(const BenchCase& call);

/// Bus bandwidth over algorithm bandwidth.
/// Source  nccl-tests, doc/PERFORMANCE.md.
double bus_factor(schedule::Routine routine, int ranks);

/// What a chooser is asked about it.
cost::Query query_of(const BenchCase& call);

/// Elements of a rank's buffers. In place the shorter one lies in the longer one at `offset`.
struct BenchBuffers {
  int64_t input = 0;
  int64_t output = 0;
  int64_t offset = 0;

  /// Elements of memory from the start of the first to the end of the last of a call in place.
  int64_t together() const { return input > output ? input : output; }
};
BenchBuffers buffers_of(const BenchCase& call, int rank);

/// Where a sweep over sizes goes.
struct SizeRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 0;    ///< Added; 0: multiplied.
  int64_t factor = 2;  ///< 1: only the first.
};
std::vector<int64_t> sizes_of(const SizeRange& range);

}  // namespace hanji::report
