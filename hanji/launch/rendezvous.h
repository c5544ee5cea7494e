#pragma once

#include <chrono>
#include <filesystem>

#include "hanji/base/status.h"
#include "hanji/launch/environment.h"
#include "hanji/shm/endpoints.h"
#include "hanji/shm/segment.h"

namespace hanji::launch {

struct MeetOptions {
  shm::SegmentOptions segment;  ///< All ranks give the same; its ranks are filled in here.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  std::filesystem::path directory;  ///< Where to meet; empty: meeting_directory().
};

/// XDG_RUNTIME_DIR/hanji where that folder exists, else hanji-UID under TMPDIR or /tmp.
std::filesystem::path meeting_directory(const Lookup& lookup = base::read);

/// The socket's path: a hash of user, job and restart.
std::filesystem::path meeting_path(const std::filesystem::path& directory,
                                   const Identity& identity);

/// Errors  kInvalidArgument, naming the variable that the folder comes from, for a path that is longer than
///         that of a Unix socket may be.
Status check_meeting_path(const std::filesystem::path& path, const Lookup& lookup = base::read);

/// Brings together ranks that a launcher without knowledge of hanji has started on this host.
///
/// Local rank 0 makes the segment and hands it, with everybody's pidfds, to the others over a Unix
/// socket in a folder that only this user may enter. The socket exists only while ranks meet;
/// what a killed job left behind is swept.
///
/// Result  Endpoints of this host's ranks without a control socket; meet_hosts() finds the others. Who
///         is alone on its host meets nobody and makes no file.
/// Errors  kTimeout naming the ranks that did not come; kMismatch if builds or plans differ,
///         kInvalidArgument if a rank is claimed twice or world sizes differ: on all that came.
///         kPeerLost if one died meanwhile.
Result<shm::Endpoints> meet(const Identity& identity, const MeetOptions& options = {});

}  // namespace hanji::launch
