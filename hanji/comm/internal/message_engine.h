#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/comm/group.h"
#include "hanji/comm/internal/call_clock.h"
#include "hanji/comm/internal/message_call.h"
#include "hanji/comm/internal/wire.h"

namespace hanji::comm {

/// Every routine over a wire, for tensors of the CPU: one call at a time, each first compared
/// between the ranks. Driven by its callers, or by a thread of its own where the wire blocks. A call's
/// own deadline counts from when it is begun.
class MessageEngine final : public Engine {
 public:
  /// `order`: as ring_order() found it.
  MessageEngine(std::unique_ptr<Wire> wire, const GroupOptions& options,
                std::vector<int> order = {});
  /// Waits for the call under way if the wire blocks; its deadline bounds that.
  ~MessageEngine() override;

  std::string_view name() const override { return wire_->name(); }
  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  bool serves(c10::Device device) const override { return wire_->serves(device); }
  bool native(schedule::Routine routine, Shares shares) const override {
    return wire_->native(routine, shares);
  }
  bool shares_memory() const override { return false; }
  std::span<const int> order() const override { return order_; }

  Result<uint64_t> submit(const Request& request, const Choice& choice) override;
  Status advance() override;
  bool done(uint64_t ticket) const override;
  Status check() override;
  Status wait(uint64_t ticket, std::span<Engine* const> others) override;
  int64_t busy_ns() const override;
  std::optional<CallTimes> times() const override;
  int64_t network_bytes() const override;

 private:
  void serve();  // the thread's
  Status poll_until(uint64_t ticket, std::span<Engine* const> others);
  Status wait_for_thread(uint64_t ticket, std::span<Engine* const> others);
  // Under mutex_, but on the thread of a wire that blocks:
  bool open_next();
  std::optional<Status> run_open();  // how the call ended, if it has
  void finish(const std::optional<Status>& ended);
  std::chrono::nanoseconds limit() const;  // of the open call
  Status late() const;
  Status lost(const Error& error) const;
  Status explain(const Error& error) const;
  std::string awaited() const;  // by name: "1, 2"

  const std::unique_ptr<Wire> wire_;
  const RankNames names_;
  const std::vector<int> order_;
  const std::chrono::nanoseconds deadline_;
  trace::Recorder* const recorder_;
  const int group_;  ///< GroupOptions::id.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MessageCall::What> waiting_;
  std::unique_ptr<MessageCall> open_;  // the first call that is not done, once begun
  base::Deadline open_until_ = base::Deadline::never();
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  int64_t busy_ns_ = 0;
  CallClock clock_;
  int64_t network_bytes_ = 0;
  Status status_;  // the first error; final
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace hanji::comm
