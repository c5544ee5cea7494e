#pragma once

#include "hanji/parallel/tensor/axis.h"
#include "hanji/parallel/tensor/typed.h"

namespace hanji::parallel::tensor {

/// The rows of a table that the axis cuts by rows: each rank finds those that it has, and zeros for the
/// others, so that the terms add up to the rows themselves, without rounding.
///
/// Shape   tokens [B, T] int64, table [V / ranks, C], `rows` those of each rank -> [B, T, C], on an axis
///         in blocks [k, B, T, C] of which all but the first are zeros. A table of rows in blocks is
///         [k, V / ranks, C], as ProductBlocks says.
/// Errors  throws Error(kInvalidArgument) for a token outside [0, V), naming it, and for rows that do
///         not fit the table.
Typed<Partial> embedding(const at::Tensor& tokens, const Parameter<Sharded<0>>& table,
                         const Axis& axis, const Extents& rows);

}  // namespace hanji::parallel::tensor
