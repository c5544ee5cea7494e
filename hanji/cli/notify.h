#pragma once

namespace hanji::launch {
struct RankEvent;
}

namespace hanji::cli {

/// Prints what is out of the ordinary about a rank to stderr, one line.
void notify(const launch::RankEvent& event);

}  // namespace hanji::cli
