#include "hanji/train/measure_link.h"

#include <algorithm>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/heap.h"

namespace hanji::train {
namespace {

constexpr int64_t kBytes = int64_t{2} << 20;  // half a chunk of comm/hierarchical
constexpr int kTimes = 3;
/// One message to compare the calls, two to exchange and to bring back sums.
constexpr int kLatencies = 3;

/// A call of many bytes that is no longer than so many of one element has waited for processors rather than
/// moved bytes: its rate is not the link's.
constexpr double kResolved = 2;

/// Median of some calls, after one that is not timed.
double seconds_of(int64_t count, int times, const comm::Group& group) {
  at::Tensor tensor = group.heap().zeros({count}, at::kFloat, "measured link");
  std::vector<double> seconds;
  for (int call = 0; call <= times; ++call) {
    const int64_t start_ns = base::now_ns();
    comm::all_reduce(tensor, group, {.label = "measured link"}).wait();
    if (call > 0) seconds.push_back(static_cast<double>(base::now_ns() - start_ns) * 1e-9);
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace

cost::Network network_of(double small_seconds, double large_seconds, double sent_bytes) {
  const bool is_resolved = large_seconds >= kResolved * small_seconds;
  const double flowing = is_resolved ? large_seconds - small_seconds : large_seconds;
  return {.latency_seconds = small_seconds / kLatencies, .bytes_per_second = sent_bytes / flowing};
}

cost::Network measure_link(const comm::Group& group, int num_hosts) {
  const double small = seconds_of(1, 5 * kTimes, group);
  const double large = seconds_of(kBytes / 4, kTimes, group);
  return network_of(small, large, 2.0 * kBytes * (num_hosts - 1) / num_hosts);
}

}  // namespace hanji::train
