#pragma once

#include <memory>
#include <source_location>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {

/// The ranks whose bits are set.
std::vector<int> ranks_in(uint64_t bits);

/// The shared-memory engine of the core, on torch tensors of the CPU.
class ShmEngine final : public Engine {
 public:
  ShmEngine(std::unique_ptr<shm::Engine> engine, Heap heap);

  std::string_view name() const override { return "shm"; }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine, Shares) const override { return false; }
  bool shares_memory() const override { return true; }
  int polls_at_once() const override;

  Result<uint64_t> submit(const Request& request, const Choice& choice) override;
  Status advance() override { return engine_->advance(); }
  bool done(uint64_t ticket) const override { return engine_->done(ticket); }
  Status check() override { return engine_->check(); }
  bool called() const override { return engine_->called(); }
  Status wait(uint64_t ticket, std::span<Engine* const> others) override;
  Result<bool> cancel(uint64_t ticket) override { return engine_->cancel(ticket); }
  Result<std::vector<int>> arrived(uint64_t ticket) const override;
  Result<std::vector<int>> delivered(uint64_t ticket) const override;
  int64_t busy_ns() const override { return engine_->stats().busy_ns; }
  std::optional<CallTimes> times() const override;
  int64_t wire_bytes() const override { return engine_->stats().wire_bytes; }

 private:
  uint32_t site_of(const Request& request);
  /// wait() beside engines of other kinds.
  Status poll_beside(uint64_t ticket, std::span<Engine* const> others);
  Status wait_beside(uint64_t ticket, std::span<Engine* const> others);

  Heap heap_;
  std::unique_ptr<shm::Engine> engine_;
  shm::Call call_;             ///< The last one: calls repeat, and what stays need not be copied.
  std::source_location site_;  ///< Where it came from.
};

}  // namespace hanji::comm
