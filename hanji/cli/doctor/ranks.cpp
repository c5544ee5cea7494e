#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "hanji/base/clock.h"
#include "hanji/base/shared_memory.h"
#include "hanji/cli/doctor/gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/heap.h"
#include "hanji/world/spawn.h"

namespace hanji::cli {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kElements = 1 << 20;
constexpr int kRepeats = 5;

/// Sums of whole numbers below 2^24 are exact in float32, so every element has one right value.
void sum_and_verify(world::World& world, double* best_seconds) {
  at::Tensor tensor = world.heap().empty({kElements}, at::kFloat, "doctor");
  const at::Tensor index = at::arange(kElements, at::kFloat);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    tensor.copy_(index + world.rank());
    const int64_t begin = base::now_ns();
    comm::all_reduce(tensor, world.group()).wait();
    const double seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
    if (!at::equal(tensor, index * kRanks + kRanks * (kRanks - 1) / 2)) {
      throw Error(base::internal("all_reduce gave a wrong sum"));
    }
    if (world.rank() == 0 && (repeat == 0 || seconds < *best_seconds)) *best_seconds = seconds;
  }
}

}  // namespace

Findings check_ranks() {
  Finding finding{.section = "ranks", .name = "all_reduce, 2 ranks", .value = ""};
  try {
    // Shared with the copies of this process, so that rank 0 can leave its time there.
    const auto shared = base::SharedMemory::create("hanji-doctor", sizeof(double)).or_throw();
    base::throw_if_error(shared.grow(0, sizeof(double)));
    auto* seconds = reinterpret_cast<double*>(shared.data());
    world::spawn(kRanks, [&](world::World& world) { sum_and_verify(world, seconds); });
    finding.value = fmt::format("right on both; 4 MiB in {:.0f} us", *seconds * 1e6);
  } catch (const std::exception& error) {
    finding.verdict = Verdict::kBroken;
    finding.value = error.what();
    finding.advice = "ranks of this host cannot train together; see the limits below first";
  }
  return {finding};
}

}  // namespace hanji::cli
