#pragma once

#include <cstdint>
#include <span>

#include "hanji/base/status.h"
#include "hanji/schedule/catalogue.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// True for none, and for 0, 1, 2, ...: nobody changes places.
bool is_by_rank(std::span<const int> order);

/// The list with what rank i does done by rank order[i]: a ring goes order[0], order[1], ..., and
/// a tree parts neighbours in `order` last.
///
/// Shape   a list of messages with even shares. Shares stay by rank: the result does what the
///         routine promises, with order[root] as root.
/// Bits    a reduction keeps its order only where `order` is by rank.
/// Errors  invalid_argument unless `order` has every rank once; unsupported where a rank touches
///         memory of another, where shares are uneven, or where one operand has several shares.
Result<StepList> reorder(const StepList& list, std::span<const int> order);

/// algorithm.make() along `order`; by rank where there is none, and where reorder() does not
/// support the list. shape.root is a rank.
/// Errors  throws Error as the maker does, and for an order that has not every rank once.
StepList make_in_order(const Algorithm& algorithm, int ranks, int64_t count, const ListShape& shape,
                       std::span<const int> order);

}  // namespace hanji::schedule
