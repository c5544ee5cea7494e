#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "hanji/data/make_beton.h"

namespace hanji::data::internal {

/// Samples that follow each other, as they were read.
struct SampleBlock {
  std::vector<BetonSample> samples;
  std::vector<Status> statuses;
  bool is_ready = false;
};

/// Reads blocks of a recipe's samples on threads, a few ahead of the one that is used.
///
/// Cost    two blocks per thread, each of about 1 MiB, or one sample if that is more.
/// Thread  take() and release() by one at a time.
class SamplesAhead {
 public:
  /// From sample `begin` on; `recipe` must outlive this.
  SamplesAhead(const BetonRecipe& recipe, uint64_t begin, int num_threads);
  ~SamplesAhead();
  SamplesAhead(const SamplesAhead&) = delete;
  SamplesAhead& operator=(const SamplesAhead&) = delete;

  /// The next block, valid until release(). Order: at most as often as there are blocks.
  const SampleBlock& take();
  void release();

 private:
  void run(const std::stop_token& stop);
  void read(uint64_t number, SampleBlock& block) const;

  const BetonRecipe& recipe_;
  const uint64_t begin_;
  const uint64_t block_samples_;
  const uint64_t num_blocks_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<SampleBlock> ring_;  // block b is in place b modulo its size
  uint64_t claimed_ = 0;
  uint64_t taken_ = 0;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace hanji::data::internal
