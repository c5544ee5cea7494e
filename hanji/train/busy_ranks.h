#pragma once

#include <functional>

#include "hanji/plan/operation_times.h"

namespace hanji::train {

/// Makes the work of one rank, with memory of its own, on the thread that will run it.
using MakeWork = std::function<std::function<void()>()>;

/// The mean time of a run of the work on the CPUs of the calling thread, while other ranks run theirs without a pause: a step is the
/// sum of many such runs, and what seldom interrupts one of them is in it. The others run on other CPUs
/// if the caller is pinned to fewer CPUs than there are ranks.
///
/// `seconds`: to spend, at least one run beside a first one, which warms up; a slow first one is the
/// result.
/// Errors  throws what the work throws on any rank.
/// Thread  runs rank 0's work itself, each other's on a thread that ends before it returns.
plan::Timing time_with_busy_ranks(int ranks, double seconds, const MakeWork& make);

}  // namespace hanji::train
