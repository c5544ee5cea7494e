#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <deque>
#include <span>
#include <string>

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/internal/frame.h"
#include "hanji/comm/hierarchical/internal/peers.h"
#include "hanji/comm/hierarchical/internal/stage_runner.h"
#include "hanji/comm/internal/call_clock.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm::hierarchical {

/// A call of all ranks as calls of the ranks of each host and of the rail peers of each rail.
///
/// Before anything moves, the ranks of a host compare their calls, then the hosts, so a verdict is
/// the same on every rank of every host. Then the stages of a Program run, one call after another.
/// A rank that loses its rail peers ends the waiting of its whole host.
class HierarchicalEngine final : public Engine {
 public:
  HierarchicalEngine(Peers peers, const GroupOptions& options);

  std::string_view name() const override { return name_; }
  int rank() const override { return peers_.rank; }
  int size() const override { return peers_.hosts.num_ranks(); }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine, Shares) const override { return false; }
  bool delegates() const override { return true; }
  bool shares_memory() const override { return false; }
  bool shares_memory_with(int other) const override {
    return peers_.hosts.host(other) == peers_.hosts.host(rank());
  }

  Result<uint64_t> submit(const Request& request, const Choice& choice) override;
  Status advance() override;
  Status check() override;
  bool done(uint64_t ticket) const override { return ticket <= completed_; }
  Status wait(uint64_t ticket, std::span<Engine* const> others) override;
  int64_t busy_ns() const override;
  std::optional<CallTimes> times() const override;
  int64_t wire_bytes() const override { return peers_.local.stats().wire_bytes; }
  int64_t network_bytes() const override;

 private:
  struct Call {
    Request request;
    uint64_t sequence;
    int64_t start_ns;
  };
  /// What the first call waits for: that its host, then its rail peers have told what they call, then,
  /// on a host with more ranks than rails, that rail 0 tells the verdict, then its stages.
  enum class Phase : uint8_t { kIdle, kHost, kRailPeers, kVerdict, kStages };

  Status poll_until(uint64_t ticket, std::span<Engine* const> others);
  int64_t between_hosts_ns() const;  // so long the rail of this rank has moved bytes
  bool step();                       // true if the phase changed or a stage began
  void open();
  void compare_across_hosts(const Status& verdict);
  void spread(const Status& verdict);
  void apply(const Status& verdict);
  void close();

  Begun exchange(const Group& group, schedule::Routine routine, int num_frames);
  std::span<const Frame> received(int num_frames) const;

  int num_neighbours() const;
  bool has_rank_without_rail() const { return num_neighbours() > peers_.hosts.num_rails(); }
  void lose(const Error& error);
  Status located(const Status& status) const;
  void notify_rail_peers();
  Status late() const;
  std::chrono::nanoseconds limit() const;  // of the first call

  const Peers peers_;
  const std::string name_;
  const std::string way_;  ///< As in describe().
  const std::chrono::nanoseconds deadline_;
  trace::Recorder* const recorder_;
  const int group_;  ///< GroupOptions::id.
  const RankNames names_;

  std::deque<Call> calls_;  // the first one is under way unless kIdle
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  Status status_;  // the first error; final

  Phase phase_ = Phase::kIdle;
  int64_t phase_since_ns_ = 0;
  int64_t since_running_ns_ = 0;  ///< The same of base::running_ns().
  CallClock clock_;
  int64_t arrived_ns_ = 0;             ///< All ranks had called the first call,
  int64_t between_at_arrival_ns_ = 0;  ///< and between_hosts_ns() was this.
  int64_t hidden_ns_ = 0;              ///< Bytes moved between hosts while this rank computed.
  int64_t busy_in_wait_ns_ = 0;        ///< Of the host's group.
  Begun exchange_;
  int64_t bytes_of_exchange_ = 0;  ///< Between hosts, for comparisons.
  Frame mine_;
  at::Tensor received_;
  StageRunner stages_;  ///< Of the first call.
};

}  // namespace hanji::comm::hierarchical
