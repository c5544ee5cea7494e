#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hanji/plan/operation_times.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/record_operations.h"

namespace hanji::train {

/// A job of pairs that is timed in place of a larger one.
struct PartOfPairs {
  plan::Plan plan;
  Workload workload;
  int64_t samples = 1;  ///< Of the pass that is timed.
};

/// The job of `plan` with as many samples of a pass, up to `samples`, as are small enough to be timed by `ranks`
/// together, and with at most two blocks, since all are alike. Where one grain is too large or takes too long, also
/// with a half, quarter, ... of its residues, sequences and bytes of a row's chunk.
/// Errors  as open_pairs().
PartOfPairs part_of_pairs(const plan::Plan& plan, int64_t samples, int ranks);

/// The same with so many residues.
PartOfPairs with_residues(PartOfPairs part, int64_t residues);

/// Records a forward and backward of the model of a plan, of which only the number of blocks is changed.
using RecordPairs = std::function<std::vector<RecordedOperation>(const plan::Plan& plan)>;

/// The distinct operations of the plan's model in the order of their first calls, by recording those of up to three
/// blocks, by which the calls of more are known.
std::vector<plan::Operation> pair_operations(const plan::Plan& plan, const RecordPairs& record);

/// Of so many samples, on tensors without memory, of which no call can be made. Autograd adds up gradients of such
/// tensors by aten::add, of others also by aten::add_.
std::vector<RecordedOperation> record_without_memory(const plan::Plan& plan, int64_t samples);

}  // namespace hanji::train
