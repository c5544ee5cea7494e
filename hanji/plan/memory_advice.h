#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Names keys that lower what a rank of `plan` needs, those of the largest part of its memory first.
///
/// `asked`: the configuration before it was resolved. `cut_axes`: as of find_contradictions().
/// Result  "set one of compute.recompute = true, mesh.axial = 2, or take fewer ranks or a smaller model": keys that this
///         model has, that are not so already, that exclude nothing that is set, and that change a part of at least a
///         tenth. Axes that cut the model take the place of as many data coordinates, as a host's memory is shared
///         out among its ranks.
std::string memory_advice(const Plan& plan, const Config& asked,
                          std::span<const std::string_view> cut_axes = {});

}  // namespace hanji::plan
