#pragma once

#include <functional>
#include <vector>

#include "hanji/data/loader.h"
#include "hanji/plan/operation_times.h"
#include "hanji/train/time_operations.h"

namespace hanji::train {

/// Seconds for the update and for reading, each.
inline constexpr double kOtherBudget = 0.05;

/// The first data coordinate's loader.
data::Loader loader_of(const TimingJob& job);

/// Rounds of one part, with `busy_ranks` at work: mean seconds.
double time_alone(const TimingJob& job, const std::function<std::function<void()>()>& make);

/// Seconds to read one sample.
double sample_seconds(const TimingJob& job);
/// From sample to sample, each of which is read by itself.
double sample_deviation(const TimingJob& job);
/// Samples are read up to each of their parts, in turn.
std::vector<plan::SamplePart> sample_parts(const TimingJob& job, double sample_seconds);

/// Costs of a file that is read past the kernel's cache: how long a page takes, and how often one comes. Where all pages
/// stay in memory, after its first step a run waits for none.
void add_pages(const TimingJob& job, plan::OperationTimes& times);

}  // namespace hanji::train
