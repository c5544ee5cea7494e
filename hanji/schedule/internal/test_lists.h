#pragma once

#include <string>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Every algorithm of this folder for `ranks` and `count`, staged ones with about three chunks,
/// and the uneven ones for counts about as large.
std::vector<StepList> all_lists(int ranks, int64_t count);

/// Shares of about `count` elements, some of them empty: for each rank, or for each pair of ranks.
std::vector<int64_t> uneven_counts(int ranks, int64_t count);
std::vector<int64_t> uneven_pairs(int ranks, int64_t count);

/// tree_reduce over about three grains per rank, unevenly owned; the last rank may own nothing.
StepList tree_list(int ranks, int64_t count);

/// "all_reduce direct, 3 ranks, 17 elements".
std::string describe(const StepList& list);

/// Runs a checked list on float32, ranks in turn, in separate inputs and outputs.
/// inputs[rank][part] are that rank's tensors. Result: outputs[rank].
using Tensor = std::vector<float>;
std::vector<Tensor> interpret(const StepList& list, const std::vector<std::vector<Tensor>>& inputs);

/// Inputs of the right shapes whose sums depend on their order.
std::vector<std::vector<Tensor>> rough_inputs(const StepList& list);

/// Sum of values[begin..end) by the definition of the tree.
float tree_sum(const std::vector<float>& values, size_t begin, size_t end);

}  // namespace hanji::schedule::internal
