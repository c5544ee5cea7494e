#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hanji/layers/batch.h"

namespace hanji::train {

/// The batches of steps on a GPU: while a step computes, those of the next one are copied, on a stream of
/// their own.
///
/// Thread  the one that launches the steps.
class DeviceBatches {
 public:
  /// Errors  throws libtorch's for a device without streams.
  explicit DeviceBatches(c10::Device device);

  /// Begins to copy batches of the host. They keep their values until wait_copied().
  /// Cost    from pinned memory the host goes on at once.
  void begin(std::span<const layers::Batch> batches);
  /// Blocks the host until what was begun is copied.
  void wait_copied();
  /// The batches begun last, for work that is launched from now on.
  std::vector<layers::Batch> take();
  bool has_begun() const { return !next_.empty(); }

  /// Marks the work that is launched by now, for is_idle().
  void mark();
  /// Whether the device has done all that was marked, and waits for the host.
  bool is_idle() const;

  /// The most that the batches of a step took; there are those of two.
  int64_t bytes_of_step() const { return bytes_; }

 private:
  c10::Stream current() const;

  c10::Device device_;
  c10::Stream copies_;
  std::optional<c10::Event> copied_, marked_;
  std::vector<layers::Batch> next_;
  int64_t bytes_ = 0;
};

}  // namespace hanji::train
