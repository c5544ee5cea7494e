#pragma once

#include <vector>

#include "hanji/base/status.h"

namespace hanji::launch {
struct RankEvent;
}

namespace hanji::cli {

/// Prints what is out of the ordinary about a rank to stderr, one line.
void notify(const launch::RankEvent& event);

/// Prints why newer checkpoints than the one that is taken are not, one line each, to stderr.
void notify_unusable(const std::vector<Status>& refused);

}  // namespace hanji::cli
