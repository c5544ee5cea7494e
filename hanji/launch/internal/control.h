#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"
#include "hanji/base/status.h"

/// The messages on a rank's control socket; the first byte tells which it is.
namespace hanji::launch {

/// Launcher to rank: the pidfds of all ranks, in order, once all have started.
Status send_peers(int control, std::span<const int> pidfds);
/// Result  one pidfd per rank; `rank`'s own is invalid.
Result<std::vector<base::Fd>> receive_peers(int control, int rank, int size,
                                            base::Deadline deadline);

/// A Status as bytes behind `tag`, and back. Long words are cut; what is no Status gives nothing.
std::vector<std::byte> status_message(std::byte tag, const Status& status);
std::optional<Status> parse_status(std::byte tag, std::span<const std::byte> bytes);
inline constexpr size_t kMaxStatusBytes = 16 * 1024;

/// Rank to launcher: why it is about to fail.
Status send_report(int control, const Status& status);
/// Behind it a rank's crash handler sends its stack.
inline constexpr char kStackTag = 'S';

/// What a rank told: why it is about to fail, or its stack.
struct Told {
  std::optional<Status> report;
  std::string stack;
};
/// The next words that have arrived; nothing if there are none now. `closed` is set once there will
/// be none any more.
std::optional<Told> take_words(int control, bool& closed);

}  // namespace hanji::launch
