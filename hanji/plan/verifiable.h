#pragma once

#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Whether a plan promises bits that one process on the CPU has.
/// Errors  kUnsupported for train.bits = fast, and for GPUs.
Status check_verifiable(const Plan& plan);

}  // namespace hanji::plan
