#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// Throws kMismatch on every rank unless all have the same names, shapes and dtypes in one order.
void check_same_structure(const std::vector<NamedParameter>& tensors, const comm::Group& group);

/// Throws kMismatch on every rank unless all hold the same bytes. Cost: one pass over the tensors
/// and an all_gather of 8 bytes per tensor.
void check_same_values(const std::vector<NamedParameter>& tensors, const comm::Group& group);

/// Copies rank 0's bytes to every rank.
void broadcast_from_first(const std::vector<NamedParameter>& tensors, const comm::Group& group);

}  // namespace hanji::parallel
