#include "hanji/cli/timing_notice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace hanji::cli {

std::string timing_text(double done_seconds, double all_seconds) {
  const double share = all_seconds > 0 ? std::clamp(done_seconds / all_seconds, 0.0, 1.0) : 1;
  return fmt::format("timing operations of this machine, once: ~{:.0f} s, {:.0f} % done",
                     std::max(1.0, std::ceil(all_seconds)), 100 * share);
}

train::TimingProgress timing_notice() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [](double done_seconds, double all_seconds) {
    const bool ends = done_seconds >= all_seconds;
    std::cerr << "\r\x1b[K" << (ends ? "" : timing_text(done_seconds, all_seconds)) << std::flush;
  };
}

}  // namespace hanji::cli
