#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/test/routine_forms.h"

namespace hanji::test {

/// A collective whose ranks are processes, one of which is broken at a chosen step of it.
struct StepJob {
  std::string name;
  int ranks = 2;
  bool channel = false;  ///< A message from rank 0 to rank 1, beside any other ranks.
  std::shared_ptr<const schedule::StepList> list;
  /// By call and rank: what the outputs are where nobody breaks.
  std::vector<std::vector<std::vector<float>>> outputs;
};

/// Runs `form` once without a fault, on threads, to know its outputs.
StepJob make_step_job(const RoutineForm& form, int ranks, bool channel);

/// A rank does the first call as it should, and of the second only the first `point` steps; a sync
/// is done once it is posted. There it gets `signal`.
struct StepFault {
  int victim = 1;
  int point = 0;  ///< 0 to the number of its steps.
  int signal = SIGKILL;
  bool resumes = true;  ///< SIGSTOP: SIGCONT once all others have named it; else never.
};

int num_points(const StepJob& job, int rank);

/// Result  seconds from the fault until the last survivor had named the victim.
/// Errors  kInternal unless every survivor names it (kPeerLost if it was killed, the watchdog's
///         word if stopped, kTimeout if it never goes on), no output has a wrong byte, one that was
///         stopped and goes on ends as if nothing had been, and survivors of a death go on in a
///         group of their own.
Result<double> run_step_fault(const StepJob& job, const StepFault& fault);

}  // namespace hanji::test
