#include "hanji/compute/device_clock.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "hanji/base/clock.h"

namespace hanji::compute {
namespace {

constexpr int64_t kFillerBytes = int64_t{256} << 20;
/// More would fill the queue of a device, and the host would wait for it.
constexpr int kMaxCalls = 32;
constexpr int kMaxRounds = 15;
/// Times over the launches from which the device, and not the queueing host, takes the time.
constexpr double kDeviceBound = 1.3;
/// How much longer the device is occupied than the host queues.
constexpr double kOccupied = 2;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

/// Runs rounds until the budget is spent, at least one.
template <class Round>
double median_of_rounds(const DeviceClock& clock, double budget_seconds, const Round& round) {
  std::vector<double> rounds;
  const int64_t begin = clock.now_ns();
  while (rounds.empty() || (std::ssize(rounds) < kMaxRounds &&
                            seconds_between(begin, clock.now_ns()) < budget_seconds)) {
    rounds.push_back(round());
  }
  return median(std::move(rounds));
}

/// A number of calls between two waits.
struct Burst {
  double queued = 0;  ///< Seconds until the host had queued all,
  double done = 0;    ///< and until the device had done all.
};

Burst burst(const DeviceClock& clock, const std::function<void()>& call, int count) {
  const int64_t begin = clock.now_ns();
  for (int i = 0; i < count; ++i) call();
  const int64_t queued = clock.now_ns();
  clock.wait();
  return {seconds_between(begin, queued), seconds_between(begin, clock.now_ns())};
}

/// What so many calls add to work that occupies the device until all are queued.
double added_seconds(const DeviceClock& clock, const std::function<void()>& call, int count,
                     double occupied) {
  const auto behind = [&](int calls) {
    const int64_t begin = clock.now_ns();
    clock.occupy(occupied);
    for (int i = 0; i < calls; ++i) call();
    clock.wait();
    return seconds_between(begin, clock.now_ns());
  };
  const double without = behind(0);
  return behind(count) - without;
}

/// Passes over memory, of which each takes a GPU longer than its host.
class Filler {
 public:
  explicit Filler(c10::Device device)
      : memory_(at::empty({kFillerBytes / 4}, at::TensorOptions(at::kFloat).device(device))),
        guard_(device.type()),
        index_(device.index()) {
    memory_.fill_(0);
    wait();
    constexpr int kPasses = 8;
    const int64_t begin = base::now_ns();
    for (int i = 0; i < kPasses; ++i) memory_.fill_(0);
    const double queued = seconds_between(begin, base::now_ns());
    wait();
    const double done = seconds_between(begin, base::now_ns());
    pass_seconds_ = std::max(1e-6, done / kPasses);
    queues_ = 2 * queued < done;
  }

  void wait() const { guard_.synchronizeDevice(index_); }
  /// Nothing where calls do not return before they are done, as with CUDA_LAUNCH_BLOCKING.
  void occupy(double seconds) {
    if (!queues_) return;
    const auto passes = static_cast<int64_t>(std::ceil(seconds / pass_seconds_));
    for (int64_t i = 0; i < passes; ++i) memory_.fill_(0);
  }

 private:
  at::Tensor memory_;
  c10::impl::VirtualGuardImpl guard_;
  c10::DeviceIndex index_;
  double pass_seconds_ = 0;
  bool queues_ = false;
};

}  // namespace

DeviceClock device_clock(c10::Device device) {
  if (device.is_cpu()) return {base::now_ns, [] {}, [](double) {}};
  const auto filler = std::make_shared<Filler>(device);
  return {base::now_ns, [filler] { filler->wait(); },
          [filler](double seconds) { filler->occupy(seconds); }};
}

CallTime time_call(const DeviceClock& clock, const std::function<void()>& call,
                   double budget_seconds) {
  burst(clock, call, 1);
  const double once = std::max(1e-7, burst(clock, call, 1).done);
  const int count = std::clamp(static_cast<int>(budget_seconds / 16 / once), 1, kMaxCalls);
  std::vector<double> queued;
  const double done = median_of_rounds(clock, budget_seconds / 2, [&] {
    const Burst one = burst(clock, call, count);
    queued.push_back(one.queued);
    return one.done;
  });
  const double launches = median(std::move(queued));
  CallTime time{done / count, launches / count};
  if (done >= kDeviceBound * launches) return time;
  const double added = median_of_rounds(clock, budget_seconds / 2, [&] {
    return added_seconds(clock, call, count, kOccupied * launches);
  });
  time.device = std::clamp(added, 0.0, done) / count;
  return time;
}

double time_until_done(const DeviceClock& clock, const std::function<void()>& call,
                       double budget_seconds) {
  burst(clock, call, 1);
  return median_of_rounds(clock, budget_seconds, [&] { return burst(clock, call, 1).done; });
}

}  // namespace hanji::compute
