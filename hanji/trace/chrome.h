#pragma once

#include <filesystem>

#include "hanji/trace/clock_offset.h"
#include "hanji/trace/recorder.h"

namespace hanji::trace {

/// Writes what a recorder holds as Chrome JSON, as Kineto does, for ui.perfetto.dev and Holistic
/// Trace Analysis: one file per rank, `path` ends in ".json" and appears whole or not at all.
///
/// Units   whole microseconds of the host's monotonic clock, so the files of a host's ranks align;
///         baseTimeNanoseconds added to them gives time since 1970.
/// Result  Category::kStep becomes "ProfilerStep#<step>", every other event a span of its lane. What the rank
///         computed and moved are kernels (kernels.h) with args.stream, the moved "nccl:<name> Kernel", which
///         analyses take for a collective: their compute, exposed communication and idle time are the run's.
/// Cost    the events of the ring in memory, sorted.
/// Errors  kInvalidArgument for another ending; those of base::OutputFile.
/// Source  Kineto, output_json.cpp; Holistic Trace Analysis, trace_parser.py.
/// \param clock  of this host in terms of rank 0's: the files of all hosts align. The file tells its error.
Status write_chrome_trace(const std::filesystem::path& path, const Recorder& recorder,
                          const ClockOffset& clock = {});

}  // namespace hanji::trace
