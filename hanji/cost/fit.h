#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/cost/fitted.h"
#include "hanji/schedule/step_list.h"

namespace hanji::cost {

/// A call to be timed, and its seconds in a row of equal calls once it was.
struct TimedCall {
  std::shared_ptr<const schedule::StepList> list;
  DType dtype = DType::kFloat32;
  bool in_heap = true;  ///< Its tensors; else in private memory, for lists that let them.
  double seconds = 0;

  Element element() const { return {base::size_of(dtype), dtype, in_heap}; }
};

/// Calls from which all of FittedCosts can be told apart: every routine by every algorithm for
/// ranks that share memory, over working sets from 1 KiB to kLevelBytes.back(); and all_reduce in
/// every one of kFittedTypes. Lists that let tensors lie in private memory come for both places.
/// Larger working sets than `most_bytes` are left out; levels that nobody reaches are those below.
std::vector<TimedCall> design_calls(int ranks, int64_t most_bytes = kLevelBytes.back());

/// The costs that explain the calls best, none below 0.
///
/// Result  with the terms' errors over the calls in the heap, of which alone they are made, and as
///         corrections what they leave unexplained. A level or type that no call reached takes the
///         values of the nearest one that has been.
/// Errors  invalid_argument without calls, or where one took no time.
Result<FittedCosts> fit_costs(const std::vector<TimedCall>& calls, int ranks, int processors);

/// Predicted over measured, minus 1; with corrections, and by the terms alone.
double error_of(const TimedCall& call, const FittedCosts& costs);
double error_of_terms(const TimedCall& call, const FittedCosts& costs);

}  // namespace hanji::cost
