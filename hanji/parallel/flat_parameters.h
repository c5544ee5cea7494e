#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hanji/layout/flat.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// The layout of all parameters in one flat buffer.
layout::FlatLayout flat_layout_of(const std::vector<NamedParameter>& parameters);

/// Moves `parameters` into `flat`, each at its offset of `layout`; every handle to a parameter then
/// sees its piece of the flat tensor. Gradients, hooks and requires_grad are kept.
///
/// Shape   flat has layout.count elements; its padding is not changed.
/// Errors  throws kInvalidArgument if a dtype or size does not match.
void move_into_flat(const std::vector<at::Tensor>& parameters, const layout::FlatLayout& layout,
                    const at::Tensor& flat);

/// A tensor of `sizes` at `offset` of `flat`'s memory that is not a view for autograd, so that
/// optimizers may detach it in place.
at::Tensor alias(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace hanji::parallel
