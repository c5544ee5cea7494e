#pragma once

#include <functional>

namespace hanji::train {

/// Called while the operations of a job are timed, which happens where no valid times of this machine are kept: first
/// with 0 seconds done, at last with all. Both are estimates. Never called from a timed section.
using TimingProgress = std::function<void(double done_seconds, double all_seconds)>;

}  // namespace hanji::train
