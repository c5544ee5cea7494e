#pragma once

#include <functional>

#include "hanji/train/dataset.h"
#include "hanji/train/job.h"
#include "hanji/train/observe.h"
#include "hanji/train/step.h"

namespace hanji::train {

/// What a rank runs under observation: what it trains with, unless a test breaks it to see whether
/// verify finds out.
struct ObservedParts {
  std::function<Job(const plan::Plan&, const comm::Group&)> assemble =
      [](const plan::Plan& plan, const comm::Group& group) { return train::assemble(plan, group); };
  Step step = run_step;
};

/// This rank's way through all steps of the plan, as `hanji train` goes it: the same job, loop and
/// step over `group`. Nothing is logged or saved.
///
/// Order   collective. Errors: throws what the job throws.
report::ObservedRun observe_rank(const plan::Plan& plan, const Dataset& dataset,
                                 const comm::Group& group, const ObserveOptions& options = {},
                                 const ObservedParts& parts = {});

}  // namespace hanji::train
