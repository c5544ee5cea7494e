#include "hanji/data/internal/samples_ahead.h"

#include <algorithm>
#include <exception>

namespace hanji::data::internal {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxBlockSamples = 64;

}  // namespace

SamplesAhead::SamplesAhead(const BetonRecipe& recipe, uint64_t begin, int num_threads)
    : recipe_(recipe),
      begin_(begin),
      block_samples_(std::clamp<uint64_t>(
          kBlockBytes / std::max<uint64_t>(1, recipe.max_sample_bytes), 1, kMaxBlockSamples)),
      num_blocks_((recipe.num_samples - begin + block_samples_ - 1) / block_samples_),
      ring_(2 * static_cast<size_t>(num_threads)) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

SamplesAhead::~SamplesAhead() {
  for (std::jthread& one : threads_) one.request_stop();
}

/// Readers wait for nothing but room, so this wait ends.
const SampleBlock& SamplesAhead::take() {
  std::unique_lock lock(mutex_);
  SampleBlock& block = ring_[taken_ % ring_.size()];
  changed_.wait(lock, [&] { return block.is_ready; });
  return block;
}

void SamplesAhead::release() {
  const std::lock_guard lock(mutex_);
  ring_[taken_ % ring_.size()].is_ready = false;
  ++taken_;
  changed_.notify_all();
}

void SamplesAhead::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto has_room = [this] {
    return claimed_ < num_blocks_ && claimed_ < taken_ + ring_.size();
  };
  while (changed_.wait(lock, stop, has_room)) {
    if (stop.stop_requested()) return;
    const uint64_t number = claimed_++;
    SampleBlock& block = ring_[number % ring_.size()];
    lock.unlock();
    read(number, block);
    lock.lock();
    block.is_ready = true;
    changed_.notify_all();
  }
}

void SamplesAhead::read(uint64_t number, SampleBlock& block) const {
  const uint64_t first = begin_ + number * block_samples_;
  const uint64_t count = std::min(block_samples_, recipe_.num_samples - first);
  block.samples.resize(count);
  block.statuses.assign(count, {});
  for (uint64_t i = 0; i < count; ++i) {
    try {
      block.statuses[i] = recipe_.read(first + i, block.samples[i]);
    } catch (const std::exception& error) {
      block.statuses[i] = base::internal(error.what());
    }
  }
}

}  // namespace hanji::data::internal
