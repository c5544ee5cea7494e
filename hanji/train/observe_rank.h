#pragma once

#include <functional>

#include "hanji/train/dataset.h"
#include "hanji/train/job.h"
#include "hanji/train/observe.h"
#include "hanji/train/step.h"

namespace hanji::train {

/// The parts of an observed rank: those of training; tests replace them by faulty ones.
struct ObservedParts {
  std::function<Job(const plan::Plan&, const comm::Group&)> assemble =
      [](const plan::Plan& plan, const comm::Group& group) { return train::assemble(plan, group); };
  Step step = run_step;
};

/// Runs all steps of the plan on this rank with the job, loop and step of `hanji train`, over `group`,
/// and records them. Logs and saves nothing.
///
/// Order   collective. Errors: throws as the job.
report::ObservedRun observe_rank(const plan::Plan& plan, const Dataset& dataset,
                                 const comm::Group& group, const ObserveOptions& options = {},
                                 const ObservedParts& parts = {});

}  // namespace hanji::train
