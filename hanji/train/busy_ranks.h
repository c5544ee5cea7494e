#pragma once

#include <functional>
#include <vector>

namespace hanji::train {

/// Runs each part of a rank's work once, in turn, and adds its seconds to its place.
using Round = std::function<void(std::vector<double>& seconds)>;
/// Makes the rounds of one rank, with memory of its own, on the thread that will run them.
using MakeRound = std::function<Round()>;

/// Adds the seconds of one part.
void add_seconds(double& seconds, const std::function<void()>& part);

/// The mean seconds of each of so many parts on the CPUs of the calling thread, while other ranks run
/// their rounds without a pause. A part follows the others, as it does in a step: it finds what they
/// left in the caches. Means are those of the middle half of the rounds by duration, so that they add up to
/// a usual round. The other ranks run on other CPUs if the caller is pinned to fewer CPUs than there
/// are ranks.
///
/// `seconds`: to spend, at least one round beside a first one, which warms up and does not count: it makes
/// kernels and gets memory.
/// Errors  throws what the work throws on any rank.
/// Thread  runs rank 0's rounds itself, each other's on a thread that ends before it returns.
std::vector<double> time_with_busy_ranks(int ranks, double seconds, size_t parts,
                                         const MakeRound& make);

}  // namespace hanji::train
