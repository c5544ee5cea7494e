#pragma once

#include <filesystem>
#include <string>

#include "hanji/base/status.h"

namespace hanji::test {

/// A rank of a running `hanji train`, struck while it is in a phase of its step.
struct PhaseStrike {
  std::filesystem::path folder;  ///< Of the run.
  int rank = 0;
  std::string phase;  ///< forward backward collective optimizer save
  int signal = 0;     ///< SIGKILL, or SIGSTOP for ever.
};

/// Stops the rank again and again until its recorder and its calls show that it stands in the phase,
/// and strikes it there. The job needs no help for it, and a rank that goes on after a few
/// milliseconds is missed by nobody. Then waits until each other rank's log names the struck one.
///
/// Result  one JSON object: pid, step, the spans "in" which it stood, and the seconds until it was
///         named, by the other ranks' order.
/// Errors  kTimeout: the rank was not met in the phase within 60 s, or not named within 60 s.
Result<std::string> strike_in_phase(const PhaseStrike& strike);

}  // namespace hanji::test
