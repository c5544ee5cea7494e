#pragma once

#include <string>

#include "hanji/train/timing_progress.h"

namespace hanji::cli {

/// "timing operations of this machine, once: ~4 s, 40 % done".
std::string timing_text(double done_seconds, double all_seconds);

/// Rewrites that line on stderr, and clears it at the end; where stderr is no terminal, none.
train::TimingProgress timing_notice();

}  // namespace hanji::cli
