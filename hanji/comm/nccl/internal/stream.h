#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace hanji::comm::nccl {

/// A point in the order of a device's work.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the device has come here. Never blocks.
  virtual bool done() = 0;
  /// What torch launches on this thread's current stream from now on runs after this point.
  virtual void hold_current() = 0;
};

/// A stream of work of a device beside the one that torch computes on, behind our own type: no
/// header of CUDA is needed, and tests bring streams of their own.
///
/// Thread  one at a time; mark_current() any.
class Stream {
 public:
  virtual ~Stream() = default;
  /// What NCCL calls cudaStream_t.
  virtual void* handle() = 0;
  /// The point after all that torch's current stream of this thread holds so far.
  virtual std::shared_ptr<Event> mark_current() = 0;
  /// What is launched here from now on runs after `event`, an event of mark_current().
  virtual void wait_for(Event& event) = 0;
  /// The point after all that this stream holds so far.
  virtual std::shared_ptr<Event> mark() = 0;
  /// Keeps the memory from being handed out again before this stream has passed what it holds.
  virtual void keep(const at::Tensor& tensor) = 0;
  /// Calls `launch` so that torch's operations in it go here.
  virtual void run(const std::function<void()>& launch) = 0;
};

/// Makes streams, no two of which that are alive at a time are one on the device.
using StreamSource = std::function<std::shared_ptr<Stream>()>;

/// Streams of `device`, through whatever device support this libtorch has.
/// Errors  throws Error(kUnsupported) for a device without streams; so does a call of the source
///         once all streams that libtorch keeps are taken.
StreamSource stream_source(c10::Device device);

}  // namespace hanji::comm::nccl
