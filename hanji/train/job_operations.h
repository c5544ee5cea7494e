#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "hanji/train/record_operations.h"
#include "hanji/train/time_operations.h"

namespace hanji::train {

/// Where operations are to be timed, and the most tensor_bytes() of one call.
struct CallPlace {
  c10::Device device = c10::kCPU;
  int64_t max_bytes = 0;
};

/// The operations of a forward and backward of so many samples, by the names of the model's facts. One of more
/// bytes than a call may have is timed by a part.
std::vector<RecordedOperation> own_operations(const TimingJob& job, int64_t samples,
                                              const CallPlace& place);

/// Those that one forward and backward of the model itself calls, on a batch of the data.
/// Errors  throws what the model and the data throw.
std::vector<RecordedOperation> seen_operations(const TimingJob& job, int64_t samples,
                                               c10::Device device = c10::kCPU);

/// The first samples of the job's data, in memory of the host.
layers::Batch first_batch(const TimingJob& job, int64_t samples);

}  // namespace hanji::train
