#pragma once

#include <sys/types.h>

#include <string_view>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// A running job, found from outside.
struct FoundJob {
  base::Fd segment;  ///< Open for reading only.
  pid_t pid = 0;     ///< In whose descriptors it was found.
};

/// Finds the shared memory of a running job by the process id of its launcher or of a rank, or by
/// the folder of its run, whose ranks.json names them. The job does not notice.
///
/// Result  digits are a process id; write ./4711 for a folder of such a name.
/// Errors  kNotFound: no such process or folder, no run in it, or one that has ended;
///         kInvalidArgument: a process of another user, of another host, or of no job of hanji;
///         kCorrupt: ranks.json is damaged.
Result<FoundJob> find_job(std::string_view target);

}  // namespace hanji::launch
