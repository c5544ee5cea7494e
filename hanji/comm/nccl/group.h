#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>

#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/comm/nccl/options.h"

namespace hanji::comm::nccl {

/// The ranks of `meet` again, with tensors on a device of each moved by NCCL.
///
/// NCCL is loaded from `options.library` at run time. Each call is described over `meet` before it
/// is launched, so that ranks that call different things, or do not come, are named on all of them;
/// the bytes go device to device on a stream of their own. Work::wait() holds torch's current stream,
/// and the host only while calls of other groups, or messages, are still to be launched, or for a call
/// with a deadline of its own, which it keeps.
/// Bits    GroupOptions::bits: kRun exchanges slices and sums them in the one order that shared
///         memory sums them in, with its bits; kFast uses NCCL's own algorithms.
/// Order   two ranks connect for messages of one direction at the first of them, each direction on
///         a stream of its own: neither waits on the device for the other, nor for a collective.
/// Cost    every rank calls it; the first call of a group connects the devices.
/// Errors  throws Error: kNotFound without NCCL, kUnsupported for a device without streams, for a
///         NCCL older than 2.10, and in a call for sums over trees of grains, messages from any
///         rank, and messages where `meet` carries none; else what NCCL says.
Group make_group(const Group& meet, c10::Device device, GroupOptions group_options = {},
                 const Options& options = {});

/// Where Options::log_directory has the log of a rank: "nccl.rank.N" in it.
std::filesystem::path log_file(const std::filesystem::path& directory, int rank);

/// The version of the library that make_group() would load, e.g. "2.27.3".
/// Errors  as make_group() without a library it can use.
Result<std::string> find_version(const Options& options = {});

}  // namespace hanji::comm::nccl
