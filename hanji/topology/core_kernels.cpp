#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/topology/internal/core_kernels.h"

namespace hanji::topology {
namespace {

using namespace std::chrono_literals;

constexpr int kRounds = 200;  // of one batch of round trips
constexpr auto kFlagTime = 30ms, kCopyTime = 50ms, kTogetherTime = 80ms, kAnswerTime = 1000ms;
constexpr uint32_t kStop = UINT32_MAX;

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Flags {
  alignas(64) std::atomic<uint32_t> ping{0};
  alignas(64) std::atomic<uint32_t> pong{0};
};

/// Waits for another value than `old`, but no longer than a second.
/// Result  it, or kStop.
uint32_t wait_for_change(const std::atomic<uint32_t>& flag, uint32_t old) {
  const auto deadline = base::Deadline::after(kAnswerTime);
  do {
    for (int spin = 0; spin < 4096; ++spin) {
      const uint32_t value = flag.load(std::memory_order_acquire);
      if (value != old) return value;
    }
    std::this_thread::yield();
  } while (!deadline.passed());
  return kStop;
}

Status answer(Flags& flags, int cpu) {
  HANJI_RETURN_IF_ERROR(pin_to(cpu));
  uint32_t seen = 0;
  while ((seen = wait_for_change(flags.ping, seen)) != kStop) {
    flags.pong.store(seen, std::memory_order_release);
  }
  return {};
}

Result<double> ask(Flags& flags, int cpu) {
  HANJI_RETURN_IF_ERROR(pin_to(cpu));
  std::vector<double> batches;
  uint32_t sent = 0;
  const auto deadline = base::Deadline::after(kFlagTime);
  do {
    const int64_t begin = base::now_ns();
    for (int round = 0; round < kRounds; ++round) {
      flags.ping.store(++sent, std::memory_order_release);
      if (wait_for_change(flags.pong, sent - 1) != kStop) continue;
      return base::timeout("the other CPU did not answer within a second; is it busy?");
    }
    batches.push_back(static_cast<double>(base::now_ns() - begin) * 1e-9 / (2 * kRounds));
  } while (!deadline.passed());
  batches.erase(batches.begin(), batches.begin() + (batches.size() > 2 ? 1 : 0));  // a cold start
  return median(batches);
}

using Buffer = std::unique_ptr<char[]>;

/// Pages that this CPU touched first, with content that depends on `seed`.
Buffer make_buffer(int64_t bytes, int seed) {
  Buffer buffer(new (std::nothrow) char[bytes]);
  if (buffer == nullptr) return buffer;
  for (int64_t page = 0; page < bytes; page += 4096) {
    std::memset(buffer.get() + page, static_cast<int>(page / 4096 + seed) & 0xff,
                std::min<int64_t>(4096, bytes - page));
  }
  return buffer;
}

Status no_memory(int64_t bytes) {
  return base::out_of_memory(fmt::format("no memory for a buffer of {} bytes", bytes));
}

Status cannot_start(const std::system_error& error) {
  return base::internal(fmt::format("cannot start a thread: {}", error.what()));
}

/// What one thread returns; a thread that could not start says so, too.
template <class Function>
Status run_thread(Function function) {
  Status status;
  try {
    std::thread([&] { status = function(); }).join();
  } catch (const std::system_error& error) {
    return cannot_start(error);
  }
  return status;
}

Result<double> time_copies(const Buffer& from, const Buffer& to, int64_t bytes) {
  std::memcpy(to.get(), from.get(), bytes);
  if (std::memcmp(to.get(), from.get(), bytes) != 0) return base::internal("a copy differs");
  std::vector<double> rates;
  const auto deadline = base::Deadline::after(kCopyTime);
  while (rates.size() < 3 || !deadline.passed()) {
    const int64_t begin = base::now_ns();
    std::memcpy(to.get(), from.get(), bytes);
    rates.push_back(static_cast<double>(bytes) * 1e9 / static_cast<double>(base::now_ns() - begin));
  }
  return median(rates);
}

/// One of the copies at once: all begin together, also if one of them has to give up.
struct Copier {
  int cpu = 0;
  int64_t bytes = 0;
  int64_t copied = 0;
  double seconds = 0;

  Status run(std::barrier<>& start) {
    const Status pinned = pin_to(cpu);
    const Buffer from = make_buffer(bytes, cpu), to = make_buffer(bytes, cpu + 1);
    start.arrive_and_wait();
    if (!pinned.ok()) return pinned;
    if (from == nullptr || to == nullptr) return no_memory(bytes);
    const int64_t begin = base::now_ns();
    const auto deadline = base::Deadline::after(kTogetherTime);
    do {
      std::memcpy(to.get(), from.get(), bytes);
      copied += bytes;
    } while (!deadline.passed());
    seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
    const bool equal = std::memcmp(to.get(), from.get(), bytes) == 0;
    return equal ? Status() : base::internal("a copy differs");
  }
};

}  // namespace

Status pin_to(int cpu) {
  // Hosts may have more CPUs than cpu_set_t holds.
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return base::out_of_memory("no memory for a set of CPUs");
  const size_t size = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(size, set);
  CPU_SET_S(cpu, size, set);
  const int failed = ::sched_setaffinity(0, size, set);
  const int error = errno;
  CPU_FREE(set);
  return failed == 0 ? Status() : base::from_errno(fmt::format("cannot pin to CPU {}", cpu), error);
}

Result<double> flag_seconds(int first, int second) {
  Flags flags;
  Status answered;
  Result<double> asked(base::internal("not run"));
  std::thread peer;
  try {
    peer = std::thread([&] { answered = answer(flags, second); });
  } catch (const std::system_error& error) {
    return cannot_start(error);
  }
  const Status started = run_thread([&] {
    asked = ask(flags, first);
    return asked.status();
  });
  flags.ping.store(kStop, std::memory_order_release);
  peer.join();
  HANJI_RETURN_IF_ERROR(answered);
  HANJI_RETURN_IF_ERROR(started);
  return asked;
}

Result<double> copy_bytes_per_second(int first, int second, int64_t bytes) {
  Buffer from;
  HANJI_RETURN_IF_ERROR(run_thread([&] {
    const Status pinned = pin_to(first);
    if (pinned.ok()) from = make_buffer(bytes, 0);
    return pinned;
  }));
  if (from == nullptr) return no_memory(bytes);
  Result<double> rate(base::internal("not run"));
  HANJI_RETURN_IF_ERROR(run_thread([&]() -> Status {
    HANJI_RETURN_IF_ERROR(pin_to(second));
    const Buffer to = make_buffer(bytes, 1);
    if (to == nullptr) return no_memory(bytes);
    rate = time_copies(from, to, bytes);
    return rate.status();
  }));
  return rate;
}

Result<double> copies_at_once(const std::vector<int>& cpus, int64_t bytes) {
  std::vector<Copier> copiers;
  for (const int cpu : cpus) copiers.push_back({.cpu = cpu, .bytes = bytes});
  std::vector<Status> results(cpus.size());
  std::vector<std::thread> threads;
  std::barrier<> start(static_cast<std::ptrdiff_t>(cpus.size()));
  Status started;
  for (size_t index = 0; index < cpus.size() && started.ok(); ++index) {
    try {
      threads.emplace_back([&, index] { results[index] = copiers[index].run(start); });
    } catch (const std::system_error& error) {
      started = cannot_start(error);
    }
  }
  for (size_t missing = threads.size(); missing < cpus.size(); ++missing) start.arrive_and_drop();
  for (std::thread& thread : threads) thread.join();
  HANJI_RETURN_IF_ERROR(started);
  double copied = 0, seconds = 0;
  for (size_t index = 0; index < cpus.size(); ++index) {
    HANJI_RETURN_IF_ERROR(results[index]);
    copied += static_cast<double>(copiers[index].copied);
    seconds = std::max(seconds, copiers[index].seconds);
  }
  return copied / seconds;
}

}  // namespace hanji::topology
