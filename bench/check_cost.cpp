// check_cost [--smoke]: what does it cost that ranks compare what they were called with?
//
// Two ranks on two cores. Each pair is a block of calls with the comparison and one without, in
// turns, in groups that change sides from pair to pair. The blocks' medians are of rank 0.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "bench/check_cost_side.h"
#include "hanji/base/clock.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/shm/heap.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_processes.h"

using namespace hanji;

namespace {

struct Size {
  const char* name;
  int64_t elements;
  int calls;  ///< Of a block.
  double limit;
};
constexpr Size kSizes[] = {{"8 B", 2, 2000, 1.05}, {"64 KiB", 16 << 10, 200, 1.01}};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void pin(int rank) {
  cpu_set_t all, one;
  ::sched_getaffinity(0, sizeof all, &all);
  int left = rank % CPU_COUNT(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || left-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// One rank's part. What rank 0 returns is the report.
class Trial {
 public:
  Trial(const std::shared_ptr<shm::Segment>& segment, const Size& size, int rank)
      : size_(size), heap_(segment, rank), rank_(rank) {
    data_ = reinterpret_cast<float*>(
        heap_.allocate(static_cast<size_t>(size.elements) * 4, "bench").or_throw().data);
    const auto list = size.elements == 2 ? schedule::all_reduce_flat(2, size.elements)
                                         : schedule::all_reduce_direct(2, size.elements);
    call_ = test::call_of(test::share(list));
    call_.input = call_.output = data_;
    for (const int set : {0, 1}) {  // the groups' places in memory change sides
      checked_.push_back(bench::make_checked(segment, 2 * set + set, rank));
      unchecked_.push_back(bench::make_unchecked(segment, 2 * set + 1 - set, rank));
    }
  }

  std::string run(int pairs) {
    for (const auto* sides : {&checked_, &unchecked_}) {
      for (const bench::Side& side : *sides) verify(side);
    }
    std::vector<double> with, without, ratios;
    for (int pair = 0; pair < pairs; ++pair) {
      double seconds[2];
      const int set = pair % 2;
      for (const int which : {pair / 2 % 2, 1 - pair / 2 % 2}) {
        seconds[which] = time(which == 0 ? checked_[set] : unchecked_[set]);
      }
      with.push_back(seconds[0]);
      without.push_back(seconds[1]);
      ratios.push_back(seconds[0] / seconds[1]);
    }
    return rank_ == 0 ? report(with, without, ratios) : "";
  }

 private:
  void verify(const bench::Side& side) {
    std::fill_n(data_, size_.elements, static_cast<float>(rank_ + 1));
    base::throw_if_error(side(call_));
    for (int64_t i = 0; i < size_.elements; ++i) {
      if (data_[i] != 3) throw std::runtime_error("a wrong sum");
    }
    std::memset(data_, 0, static_cast<size_t>(size_.elements) * 4);
  }

  /// Seconds per call of a block: the best of five, for what interrupts only adds.
  double time(const bench::Side& side) {
    double best = 1;
    for (int part = 0; part < 5; ++part) {
      const int64_t start = base::now_ns();
      for (int i = 0; i < size_.calls / 5; ++i) base::throw_if_error(side(call_));
      best = std::min(best, static_cast<double>(base::now_ns() - start) * 1e-9 / (size_.calls / 5));
    }
    return best;
  }

  std::string report(const std::vector<double>& with, const std::vector<double>& without,
                     std::vector<double> ratios) const {
    std::sort(ratios.begin(), ratios.end());
    const size_t n = ratios.size();
    // An interval of the median by ranks, 95 %: n/2 -+ 0.98 sqrt(n).
    const auto spread = static_cast<size_t>(0.98 * std::sqrt(static_cast<double>(n)));
    const auto low = ratios[n / 2 - std::min(spread, n / 2)];
    const auto high = ratios[std::min(n / 2 + spread, n - 1)];
    const auto slower = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r > 1; });
    return fmt::format(
        "{{\"question\": \"check_cost\", \"bytes\": \"{}\", \"seconds_checked\": {:.3g}, "
        "\"seconds_unchecked\": {:.3g}, \"ratio_median\": {:.4f}, \"ratio_interval_95\": [{:.4f}, "
        "{:.4f}], \"pairs\": {}, \"pairs_slower\": {}, \"limit\": {}}}",
        size_.name, median(with), median(without), median(ratios), low, high, n, slower,
        size_.limit);
  }

  const Size& size_;
  shm::Heap heap_;
  int rank_;
  float* data_ = nullptr;
  shm::Call call_;
  std::vector<bench::Side> checked_, unchecked_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  for (const Size& size : kSizes) {
    const auto segment = test::make_segment(2);
    const auto answers = test::run_processes(2, [&](int rank) {
      pin(rank);
      return Trial(segment, size, rank).run(smoke ? 4 : 400);
    });
    fmt::print("{}\n", answers[0]);
    if (answers[0].empty() || answers[0][0] != '{') return 1;
  }
}
