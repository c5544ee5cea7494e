#include "hanji/train/device_batches.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace hanji::train {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

c10::Event recorded(const c10::Stream& stream) {
  c10::Event event(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(stream);
  return event;
}

}  // namespace

DeviceBatches::DeviceBatches(c10::Device device)
    : device_(device), copies_(Guard(device.type()).getStreamFromGlobalPool(device)) {}

c10::Stream DeviceBatches::current() const { return Guard(device_.type()).getStream(device_); }

void DeviceBatches::begin(std::span<const layers::Batch> batches) {
  const c10::StreamGuard here(copies_);
  int64_t bytes = 0;
  for (const layers::Batch& one : batches) {
    const layers::Batch& there = next_.emplace_back(one.to(device_, /*non_blocking=*/true));
    bytes += static_cast<int64_t>(there.inputs.nbytes() + there.targets.nbytes());
  }
  bytes_ = std::max(bytes_, bytes);
  copied_.emplace(recorded(copies_));
}

void DeviceBatches::wait_copied() {
  if (copied_) copied_->synchronize();
}

std::vector<layers::Batch> DeviceBatches::take() {
  const c10::Stream stream = current();
  copied_->block(stream);
  for (const layers::Batch& one : next_) {
    one.inputs.record_stream(stream);
    one.targets.record_stream(stream);
  }
  return std::exchange(next_, {});
}

void DeviceBatches::mark() { marked_.emplace(recorded(current())); }

bool DeviceBatches::is_idle() const { return marked_->query(); }

}  // namespace hanji::train
