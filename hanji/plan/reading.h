#pragma once

#include <cstdint>

#include "hanji/plan/config.h"

namespace hanji::plan {

/// Who reads the samples of a rank: data.workers and data.prefetch.
struct Reading {
  int64_t workers = 0;   ///< Threads beside the rank's own, which reads too instead of waiting.
  int64_t prefetch = 0;  ///< Steps that are read ahead; 0: workers read the step that is asked.
  bool operator==(const Reading&) const = default;
};

/// What the reading of a rank is chosen from.
struct ReadingFacts {
  double sample_seconds = 0;    ///< Of one thread.
  double sample_deviation = 0;  ///< Its standard deviation from sample to sample.
  int64_t samples = 1;          ///< Of a step.
  double step_seconds = 0;      ///< Of a step without reading.
  int cores = 1;                ///< For this rank.
  int threads = 1;              ///< That compute.
};

/// What reading adds to a step.
struct ReadingCost {
  double stall_seconds = 0;  ///< The step waits for samples.
  double slow_seconds = 0;   ///< It computes longer, as workers take its cores.

  double seconds() const { return stall_seconds + slow_seconds; }
};

/// Cores are shared out evenly among the threads that run. Without prefetch the workers and the rank read
/// before the step; with it, workers read while it computes, and what is left then with the rank.
ReadingCost reading_cost(const ReadingFacts& facts, const Reading& reading);

/// Chooses what `asked` leaves at kAuto.
///
/// Where sample_seconds is 0 nobody knows it: no threads, or those that were asked one step ahead.
/// Result  the fewest threads and steps with which the predicted step is within 2 % of the shortest.
///         As many steps ahead as a step's samples take at three standard deviations above the
///         mean, at most 8 and `most_ahead`.
Reading choose_reading(const ReadingFacts& facts, const Reading& asked, int64_t most_ahead);

}  // namespace hanji::plan
