#include "hanji/cost/compute_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <system_error>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/cost/internal/pin.h"

namespace hanji::cost {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kRoundNs = 5'000'000;

using Vector [[gnu::vector_size(32)]] = float;

/// As many independent sums as keep two multipliers of latency 4 busy, and a few more.
[[gnu::always_inline]] inline float multiply(float factor) {
  constexpr int kChains = 12, kLinks = 512;
  const Vector by = factor - Vector{};
  std::array<Vector, kChains> sums{};
  for (int link = 0; link < kLinks; ++link) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) sums[chain] = sums[chain] * by + by;
  }
  Vector all{};
  for (const Vector& sum : sums) all += sum;
  return all[0];
}

float multiply_baseline(float factor) { return multiply(factor); }

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("avx2,fma")]] float multiply_fma(float factor) { return multiply(factor); }
auto best_multiply() {
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return fma ? &multiply_fma : &multiply_baseline;
}
#else
auto best_multiply() { return &multiply_baseline; }
#endif

/// How often this thread multiplies until then.
int64_t count_products(int64_t end_ns) {
  const auto run = best_multiply();
  volatile float factor = 0.5f;
  int64_t count = 0;
  for (; base::now_ns() < end_ns; ++count) factor = run(factor);
  return count;
}

/// Of each of so many threads that multiply in one window of time, on average.
Result<double> mean_count(const MeasureOptions& options, int threads) {
  std::atomic<int64_t> end_ns = 0;
  std::barrier start(threads, [&]() noexcept { end_ns = base::now_ns() + kRoundNs; });
  std::atomic<int64_t> count = 0;
  std::vector<std::jthread> running;
  try {
    for (int rank = 0; rank < threads; ++rank) {
      running.emplace_back([&, rank] {
        pin_rank(options, rank);
        start.arrive_and_wait();
        count += count_products(end_ns);
      });
    }
  } catch (const std::system_error& error) {
    for (auto rank = running.size(); rank < static_cast<size_t>(threads); ++rank) {
      start.arrive_and_drop();
    }
    return base::out_of_memory(
        fmt::format("measuring how ranks share cores needs {} threads: {}", threads, error.what()));
  }
  running.clear();
  return static_cast<double>(count) / threads;
}

}  // namespace

Result<double> measure_compute_share(const MeasureOptions& options) {
  if (options.ranks < 1) {
    return base::invalid_argument(
        fmt::format("rates are measured with at least 1 rank, not {}", options.ranks));
  }
  if (options.ranks == 1) return 1.0;
  double alone = 1, together = 1;
  for (int round = 0; round < kRounds; ++round) {
    HANJI_ASSIGN_OR_RETURN(const double one, mean_count(options, 1));
    HANJI_ASSIGN_OR_RETURN(const double all, mean_count(options, options.ranks));
    alone = std::max(alone, one);
    together = std::max(together, all);
  }
  return std::min(1.0, together / alone);
}

}  // namespace hanji::cost
