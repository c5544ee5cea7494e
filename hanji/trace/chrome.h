#pragma once

#include <filesystem>

#include "hanji/trace/recorder.h"

namespace hanji::trace {

/// Writes what a recorder holds as Chrome JSON, as Kineto does, for ui.perfetto.dev and Holistic
/// Trace Analysis: one file per rank, `path` ends in ".json" and appears whole or not at all.
///
/// Units   microseconds of the host's monotonic clock, so the files of a host's ranks align;
///         baseTimeNanoseconds added to them gives time since 1970.
/// Result  Category::kStep becomes "ProfilerStep#<step>"; communication "nccl:<name> Kernel",
///         which analyses take for a collective; it and compute carry their lane as args.stream.
/// Cost    one pass over the ring, one event in memory at a time.
/// Errors  kInvalidArgument for another ending; those of base::OutputFile.
/// Source  Kineto, output_json.cpp; Holistic Trace Analysis, trace_parser.py.
Status write_chrome_trace(const std::filesystem::path& path, const Recorder& recorder);

}  // namespace hanji::trace
