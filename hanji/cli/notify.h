#pragma once

#include <vector>

#include "hanji/base/status.h"

namespace hanji::launch {
struct RankEvent;
}

namespace hanji::cli {

/// Prints what is out of the ordinary about a rank to stderr, one line. The first failure is announced; its
/// words follow once, in the last line about the run.
void notify(const launch::RankEvent& event);
/// The same with the words at once, as the run may go on for long.
void notify_at_once(const launch::RankEvent& event);

/// Prints why newer checkpoints than the one that is taken are not, one line each, to stderr.
void notify_unusable(const std::vector<Status>& refused);

}  // namespace hanji::cli
