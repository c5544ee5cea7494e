#pragma once

#include <optional>
#include <span>
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
/// The next report that has arrived; nothing if there is none now. `closed` is set once there will
/// be none any more.
std::optional<Status> take_report(int control, bool& closed);

}  // namespace hanji::launch
