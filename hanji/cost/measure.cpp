#include "hanji/cost/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/cost/internal/pin.h"

namespace hanji::cost {
namespace {

constexpr int64_t kMaxTotalBytes = int64_t{128} << 20;
constexpr int64_t kCachedBytes = int64_t{256} << 10;  // per rank, inside most second-level caches
constexpr int64_t kPhaseNs = 20'000'000;
constexpr int kSyncsPerSample = 20;
constexpr size_t kMaxSamples = 4096;

// The flag protocol of the engine: one monotonic word per rank on its own line.
class Meeting {
 public:
  Meeting(int ranks, int usable_cores) : words_(ranks), spins_(ranks <= usable_cores ? 2000 : 50) {}

  void sync(int rank) {
    const uint64_t due = words_[rank].value.load(std::memory_order_relaxed) + 1;
    words_[rank].value.store(due, std::memory_order_release);
    for (const Word& word : words_) wait(word, due);
  }

 private:
  struct alignas(64) Word {
    std::atomic<uint64_t> value{0};
  };

  void wait(const Word& word, uint64_t due) const {
    for (int spin = 0; word.value.load(std::memory_order_acquire) < due; ++spin) {
      if (spin >= spins_) std::this_thread::yield();
    }
  }

  std::vector<Word> words_;
  const int spins_;
};

[[gnu::always_inline]] inline void average(float* __restrict a, float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float mean = (a[i] + b[i]) * 0.5f;
    a[i] = mean;
    b[i] = mean;
  }
}

void average_baseline(float* a, float* b, int64_t n) { average(a, b, n); }

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2")]] void average_avx2(float* a, float* b, int64_t n) { average(a, b, n); }
using Average = void (*)(float*, float*, int64_t);
Average best_average() { return __builtin_cpu_supports("avx2") ? average_avx2 : average_baseline; }
#else
auto best_average() { return &average_baseline; }
#endif

using Memory = std::unique_ptr<float[]>;

// What every rank does in one sample.
struct Phase {
  std::function<void(int rank)> work;
  std::vector<double> samples = {};  // seconds

  // As STREAM does: work of others only ever lengthens a sample, so the shortest is the machine's.
  double seconds() const { return *std::min_element(samples.begin(), samples.end()); }
};

class Measurement {
 public:
  explicit Measurement(const MeasureOptions& options)
      : options_(options), meeting_(options.ranks, options.usable_cores) {
    const int64_t wanted = 2 * std::max(options.cache_bytes, int64_t{4} << 20);
    floats_ = std::max(std::min(wanted, kMaxTotalBytes) / options.ranks, kCachedBytes) / 4;
  }

  Status allocate();
  Status run();
  Rates rates();

 private:
  void live(int rank);
  void repeat(int rank, Phase& phase);
  void update_slices(int rank, int64_t floats);
  void copy_halves(int rank);
  void sync_often(int rank);

  const MeasureOptions& options_;
  Meeting meeting_;
  int64_t floats_;  // per rank
  std::vector<Memory> buffers_;
  std::atomic<int> gate_{0};  // 1: go, -1: go home
  std::atomic<bool> phase_over_{false};
  Phase syncs_{[this](int rank) { sync_often(rank); }};
  Phase memory_{[this](int rank) { update_slices(rank, floats_); }};
  Phase cached_{[this](int rank) { update_slices(rank, kCachedBytes / 4); }};
  Phase copy_{[this](int rank) { copy_halves(rank); }};
};

Status Measurement::allocate() {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    buffers_.emplace_back(new (std::nothrow) float[floats_]);  // untouched: the owner does that
    if (!buffers_.back()) {
      return base::out_of_memory(
          fmt::format("measuring rates needs {} buffers of {} bytes; run fewer ranks",
                      options_.ranks, floats_ * 4));
    }
  }
  return {};
}

void Measurement::sync_often(int rank) {
  for (int i = 0; i < kSyncsPerSample; ++i) meeting_.sync(rank);
}

// all_reduce_direct's pattern: rank r updates slice r of everyone's buffer, two buffers at a time.
void Measurement::update_slices(int rank, int64_t floats) {
  static const auto mean = best_average();
  const int64_t slice = floats / options_.ranks;
  const int64_t begin = slice * rank;
  const int pairs = options_.ranks / 2;
  for (int i = 0; i < pairs; ++i) {
    mean(buffers_[2 * i].get() + begin, buffers_[2 * i + 1].get() + begin, slice);
  }
  if (options_.ranks % 2 == 0) return;
  float* last = buffers_.back().get() + begin;
  mean(last, last + slice / 2, slice / 2);
}

// One rank copies through all buffers: together they exceed the caches.
void Measurement::copy_halves(int rank) {
  if (rank != 0) return;
  const int64_t half = floats_ / 2;
  for (const Memory& buffer : buffers_) std::memcpy(buffer.get(), buffer.get() + half, half * 4);
}

// Rank 0 takes the time while all others wait for it: after everybody's work of one sample and
// before anybody's of the next, so that a rank that wakes up late is counted.
void Measurement::repeat(int rank, Phase& phase) {
  int64_t end = 0;
  int64_t last = 0;
  for (;;) {
    phase.work(rank);
    meeting_.sync(rank);
    if (rank == 0) {
      const int64_t now = base::now_ns();
      if (last == 0) {
        end = now + kPhaseNs;  // the first round was the warm-up
        phase_over_ = false;   // everybody has read the last phase's, or would not be here
      } else {
        phase.samples.push_back(static_cast<double>(now - last) * 1e-9);
        phase_over_ = now >= end || phase.samples.size() >= kMaxSamples;
      }
      last = now;
    }
    meeting_.sync(rank);
    if (phase_over_) return;
  }
}

void Measurement::live(int rank) {
  while (gate_ == 0) std::this_thread::yield();
  if (gate_ < 0) return;
  pin_rank(options_, rank);
  std::fill_n(buffers_[rank].get(), floats_, 1.0f);
  for (Phase* phase : {&syncs_, &memory_, &cached_, &copy_}) {
    meeting_.sync(rank);
    repeat(rank, *phase);
  }
}

Status Measurement::run() {
  std::vector<std::jthread> threads;
  Status status;
  try {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      threads.emplace_back([this, rank] { live(rank); });
    }
    gate_ = 1;
  } catch (const std::system_error& error) {
    gate_ = -1;
    status = base::out_of_memory(
        fmt::format("measuring rates needs {} threads: {}", options_.ranks, error.what()));
  }
  return status;
}

Rates Measurement::rates() {
  const auto moved = [&](int64_t floats) {  // each byte of every slice is read and written
    return static_cast<double>(floats / options_.ranks * options_.ranks) * options_.ranks * 4 * 2;
  };
  Rates rates;
  rates.sync_seconds = syncs_.seconds() / kSyncsPerSample;
  rates.memory_bytes_per_second = moved(floats_) / memory_.seconds();
  rates.cached_bytes_per_second =
      std::max(rates.memory_bytes_per_second, moved(kCachedBytes / 4) / cached_.seconds());
  rates.copy_bytes_per_second =
      static_cast<double>(floats_ / 2 * 4 * 2 * options_.ranks) / copy_.seconds();
  rates.cache_bytes = std::max<int64_t>(1, options_.cache_bytes);
  return rates;
}

}  // namespace

Result<Rates> measure_rates(const MeasureOptions& options) {
  if (options.ranks < 1) {
    return base::invalid_argument(
        fmt::format("rates are measured with at least 1 rank, not {}", options.ranks));
  }
  Measurement measurement(options);
  HANJI_RETURN_IF_ERROR(measurement.allocate());
  HANJI_RETURN_IF_ERROR(measurement.run());
  return measurement.rates();
}

}  // namespace hanji::cost
