#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hanji/trace/event.h"

namespace hanji::trace {

/// What a rank was busy with, as analyses of devices count it: work on streams, and nothing while it waits.
enum class Stream : uint8_t { kCompute, kTransfer };
inline constexpr int kNumStreams = 2;
std::string_view name_of(Stream stream);

/// Units: whole microseconds of base::now_ns(), since analyses round others and lose short ones.
struct Kernel {
  int64_t start_us = 0;
  int64_t end_us = 0;
  Stream stream = Stream::kCompute;
  NameId name = 0;  ///< Of the innermost span around it; 0: of a step, outside of its parts.
  int64_t step = 0;
};

/// Nanoseconds to the nearest microsecond: an order of times stays.
int64_t to_us(int64_t nanoseconds);

/// The kernels of steps, and of parts of the run that compute between steps, sorted by their start.
///
/// Computing is the time of a step without samples that are waited for, skew, and transfer on the rank's own thread:
/// the kernel of a part ends where such a wait begins, and another one follows it. Their sum is that of
/// report::compute_seconds(), and transfers add up to the exposed and hidden ones of the step.
/// Order   kernels of one stream do not overlap.
/// Cost    n log n of the events, in memory.
/// \param events       those of a recorder, in its order.
/// \param is_complete  false if earlier events were lost: then nothing is told before the end of the first step that
///                     is known, whose waits may be missing.
std::vector<Kernel> kernels_of(const std::vector<Event>& events, bool is_complete);

}  // namespace hanji::trace
