#include "hanji/compute/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

namespace hanji::compute {
namespace {

constexpr size_t kLarge = size_t{48} << 20;

rusage usage() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  return used;
}

/// Pages that the process got while it used and freed a large block so often.
int64_t faults_of_uses(int uses) {
  const auto before = usage().ru_minflt;
  for (int i = 0; i < uses; ++i) {
    void* const block = std::malloc(kLarge);
    std::memset(block, 1, kLarge);
    std::free(block);
  }
  return usage().ru_minflt - before;
}

bool is_in_heap() {
  const auto mapped = mallinfo2().hblks;
  void* const block = std::malloc(kLarge);
  const bool found = mallinfo2().hblks == mapped;
  std::free(block);
  return found;
}

// What is switched is process-wide, so that each test has a process of its own.

TEST(KeptMemory, LargeBlocksAreFoundInTheHeapAgain) {
  const auto check = [] {
    const bool kept = keep_freed_memory();
    faults_of_uses(1);
    std::_Exit(kept && is_in_heap() && faults_of_uses(20) < 100 ? 0 : 1);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

TEST(KeptMemory, ReservedAddressesAreNotInMemory) {
  const auto check = [] {
    const auto before = usage().ru_maxrss;
    keep_freed_memory();
    std::_Exit(usage().ru_maxrss - before < 64 << 10 ? 0 : 1);  // in KiB, of 1 GiB
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hanji::compute
