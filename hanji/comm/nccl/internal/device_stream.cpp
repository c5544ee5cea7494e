#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

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

class DeviceStream final : public Stream {
 public:
  explicit DeviceStream(c10::Device device)
      : guard_(device.type()),
        device_(device),
        stream_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/true)) {}

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
  Guard guard_;
  c10::Device device_;
  c10::Stream stream_;
};

}  // namespace

std::unique_ptr<Stream> make_stream(c10::Device device) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) {
    throw Error(base::unsupported(
        fmt::format("NCCL: this libtorch has no streams on {}; build hanji on libtorch for CUDA, "
                    "and give a device such as cuda:0",
                    device.str())));
  }
  return std::make_unique<DeviceStream>(device);
}

}  // namespace hanji::comm::nccl
