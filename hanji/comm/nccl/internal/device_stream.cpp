#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <mutex>
#include <set>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/nccl/internal/stream.h"

namespace hanji::comm::nccl {
namespace {

using Guard = c10::impl::VirtualGuardImpl;

class DeviceEvent final : public Event {
 public:
  explicit DeviceEvent(const c10::Stream& at)
      : device_(at.device()), event_(device_.type(), c10::EventFlag::BACKEND_DEFAULT) {
    event_.record(at);
  }
  bool done() override { return event_.query(); }
  void hold_current() override { event_.block(Guard(device_.type()).getStream(device_)); }
  void hold(const c10::Stream& stream) { event_.block(stream); }

 private:
  c10::Device device_;
  c10::Event event_;
};

/// The streams of one device that are taken.
class Taken {
 public:
  explicit Taken(c10::Device device) : device_(device) {}

  /// libtorch hands out a fixed number of streams, one after another, again and again.
  c10::Stream take() {
    const Guard guard(device_.type());
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < kMaxTries; ++i) {
      const c10::Stream stream = guard.getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
      if (ids_.insert(stream.id()).second) return stream;
    }
    throw Error(base::unsupported(fmt::format(
        "NCCL: all {} streams that libtorch keeps on {} are taken by groups, and by pairs of ranks "
        "that have sent messages; end some of these groups, or send over fewer pairs",
        ids_.size(), device_.str())));
  }

  void give_back(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    ids_.erase(stream.id());
  }

  c10::Device device() const { return device_; }

 private:
  static constexpr int kMaxTries = 256;
  const c10::Device device_;
  std::mutex mutex_;
  std::set<c10::StreamId> ids_;
};

class DeviceStream final : public Stream {
 public:
  explicit DeviceStream(std::shared_ptr<Taken> taken)
      : taken_(std::move(taken)),
        guard_(taken_->device().type()),
        device_(taken_->device()),
        stream_(taken_->take()) {}
  ~DeviceStream() override { taken_->give_back(stream_); }

  void* handle() override { return stream_.native_handle(); }
  std::shared_ptr<Event> mark_current() override {
    return std::make_shared<DeviceEvent>(guard_.getStream(device_));
  }
  void wait_for(Event& event) override { dynamic_cast<DeviceEvent&>(event).hold(stream_); }
  std::shared_ptr<Event> mark() override { return std::make_shared<DeviceEvent>(stream_); }
  void keep(const at::Tensor& tensor) override { tensor.record_stream(stream_); }
  void run(const std::function<void()>& launch) override {
    const c10::StreamGuard here(stream_);
    launch();
  }

 private:
  std::shared_ptr<Taken> taken_;
  Guard guard_;
  c10::Device device_;
  c10::Stream stream_;
};

}  // namespace

StreamSource stream_source(c10::Device device) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) {
    throw Error(base::unsupported(
        fmt::format("NCCL: this libtorch has no streams on {}; build hanji on libtorch for CUDA, "
                    "and give a device such as cuda:0",
                    device.str())));
  }
  return
      [taken = std::make_shared<Taken>(device)] { return std::make_shared<DeviceStream>(taken); };
}

}  // namespace hanji::comm::nccl
