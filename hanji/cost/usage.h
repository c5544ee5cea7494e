#pragma once

#include <vector>

#include "hanji/cost/fitted.h"
#include "hanji/schedule/step_list.h"

namespace hanji::cost {

/// How much of each of FittedCosts' unknowns one of many equal calls in a row uses, so that its
/// seconds are the sum of usage times cost.
///
/// Result  in the order of unknowns_of(). Between two meetings the rank that takes longest by
///         `costs` counts, or the share of a processor where ranks are more than `processors`; what comes
///         after the last meeting falls together with what the next call does before its first.
///         Tensors are priced at the level of all tensors and staging together, staging at its own.
///         Input and output are one buffer in all_reduce, broadcast and reduce, else two.
/// Order   the list has passed schedule::check_bounds(), and shares memory: neither send nor recv.
std::vector<double> usage_of(const schedule::StepList& list, const Element& element,
                             const FittedCosts& costs);

/// Costs of a modest machine, which say nothing but who is the busiest before anything was fitted.
FittedCosts assumed_costs(int ranks, int processors);

/// Bytes of all tensors of the call together, without staging.
double tensor_bytes(const schedule::StepList& list, const Element& element);

}  // namespace hanji::cost
