#pragma once

#include <cstdint>
#include <filesystem>

#include "hanji/base/status.h"

namespace hanji::base {

/// Writes what is new of a file to its disk, and drops its pages from the kernel's cache.
///
/// Result  the share of its pages that is still there, 0 to 1: those that a process maps, and all of a
///         file system in memory.
/// Errors  as from_errno().
Result<double> drop_cached_pages(const std::filesystem::path& path);

/// Reads a file from its begin to its end past the kernel's cache, 8 MiB at a time.
///
/// Result  bytes per second.
/// Cost    at most `most_seconds` and one read more.
/// Errors  as open_past_cache(), from_errno(); kInvalidArgument for an empty file.
Result<double> read_past_cache(const std::filesystem::path& path, double most_seconds);

}  // namespace hanji::base
