#include "hanji/train/busy_ranks.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"

namespace hanji::train {
namespace {

/// Of fewer one interrupt would be the most.
constexpr double kMinSeconds = 2e-3;
/// More tell nothing new.
constexpr size_t kMaxRounds = 1000;

double seconds_since(int64_t start_ns) {
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9;
}

/// The CPUs of other ranks, where a launcher has pinned this one: beside it they would halve its time.
std::optional<cpu_set_t> cpus_of_others(int ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const int failed = ::sched_getaffinity(0, sizeof mine, &mine);
  if (failed != 0 || CPU_COUNT(&mine) >= ranks) return {};
  cpu_set_t others;
  CPU_ZERO(&others);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &others);
  }
  return others;
}

/// Of each part, over the middle half of the rounds by all their parts: sums of such means are what a
/// usual round takes, and another program's seconds are in none.
std::vector<double> mean_of_usual(std::vector<std::vector<double>> rounds) {
  const auto total = [](const std::vector<double>& one) {
    return std::reduce(one.begin(), one.end());
  };
  std::ranges::sort(rounds, {}, total);
  const size_t begin = rounds.size() / 4, end = std::max(begin + 1, (3 * rounds.size() + 3) / 4);
  std::vector<double> means(rounds[begin].size());
  for (size_t i = begin; i < end; ++i) {
    for (size_t part = 0; part < means.size(); ++part) means[part] += rounds[i][part];
  }
  for (double& one : means) one /= static_cast<double>(end - begin);
  return means;
}

/// Ranks that run their work until the end of this object.
class BusyRanks {
 public:
  BusyRanks(int ranks, size_t parts)
      : warm_(ranks), cpus_(cpus_of_others(ranks + 1)), parts_(parts) {}
  ~BusyRanks() { is_over_ = true; }
  BusyRanks(const BusyRanks&) = delete;
  BusyRanks& operator=(const BusyRanks&) = delete;

  void start(int ranks, const MakeRound& make) {
    for (int rank = 0; rank < ranks; ++rank) {
      threads_.emplace_back([this, make] { work(make); });
    }
  }

  void until_warm() { warm_.wait(); }

  /// What any of them has thrown is thrown here.
  void stop() {
    is_over_ = true;
    threads_.clear();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work(const MakeRound& make) {
    // A host without other CPUs for this process refuses, and they share those that there are.
    if (cpus_) ::sched_setaffinity(0, sizeof *cpus_, &*cpus_);
    Round round;
    std::vector<double> seconds(parts_);
    fail_safe([&] {
      round = make();
      round(seconds);
    });
    warm_.count_down();
    while (!is_over_) fail_safe([&] { round(seconds); });
  }

  void fail_safe(const std::function<void()>& run) {
    try {
      run();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      is_over_ = true;
    }
  }

  std::latch warm_;
  const std::optional<cpu_set_t> cpus_;
  const size_t parts_;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

}  // namespace

void add_seconds(double& seconds, const std::function<void()>& part) {
  const int64_t begin_ns = base::now_ns();
  part();
  seconds += seconds_since(begin_ns);
}

std::vector<double> time_with_busy_ranks(int ranks, double seconds, size_t parts,
                                         const MakeRound& make) {
  BusyRanks others(ranks - 1, parts);
  others.start(ranks - 1, make);
  const Round round = make();
  std::vector<double> warm(parts);
  round(warm);
  others.until_warm();
  const double most = std::max(seconds, kMinSeconds);
  std::vector<std::vector<double>> rounds;
  const int64_t begin_ns = base::now_ns();
  while (rounds.empty() || (rounds.size() < kMaxRounds && seconds_since(begin_ns) < most)) {
    round(rounds.emplace_back(parts));
  }
  others.stop();
  return mean_of_usual(std::move(rounds));
}

}  // namespace hanji::train
