#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/comm/group.h"
#include "hanji/schedule/operation.h"
#include "hanji/schedule/step_list.h"

namespace hanji::comm {

/// Between two polls of a wait that no engine wakes.
inline constexpr auto kPollInterval = std::chrono::microseconds(50);

/// One collective as its caller stated it, checked by submit().
struct Request {
  schedule::Routine routine = schedule::Routine::kBarrier;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  DType dtype = DType::kUInt8;
  int64_t count = 0;  ///< Elements, as the routine's step lists count them.
  int root = 0;
  double factor = 1;  ///< Of premul_sum.
  uint64_t tag = 0;
  std::chrono::nanoseconds deadline{0};  ///< 0: the group's.
  at::Tensor input{};   ///< The caller's tensors themselves, contiguous; undefined for a barrier.
  at::Tensor output{};  ///< The same as `input` for a call in place.
  int64_t input_stride = 0;  ///< Elements between the partial buffers of `input`.
  int num_parts = 1;
  std::string label{};
  std::source_location call_site{};
  std::shared_ptr<const schedule::StepList>
      steps{};                    ///< Of a tree reduction, which its caller made.
  at::Tensor copy_out{};          ///< Gets `output` at the end, where that is staging in the heap.
  std::vector<int64_t> counts{};  ///< Uneven shares, as schedule::StepList::counts.
  bool in_place = false;          ///< kAllToAll: `input` is `output`.
  bool agreed = false;            ///< The ranks have compared their calls already.
};

/// How a request is carried out: by a step list, or by the engine's own routine where both are null.
struct Choice {
  std::shared_ptr<const schedule::StepList> steps;
  std::shared_ptr<const schedule::StepList> steps_if_private;  ///< For buffers no peer can map.
};

/// Whether all ranks have the same count.
enum class Shares : bool { kEven, kUneven };

/// Carries out requests in the order of submission, and records each in the group's trace. Chooses
/// nothing.
///
/// Thread  one at a time.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool serves(c10::Device device) const = 0;
  /// Where its tensors lie.
  virtual c10::Device device() const { return c10::kCPU; }
  /// True if the engine has an algorithm of its own for the routine.
  virtual bool native(schedule::Routine routine, Shares shares) const = 0;
  /// True if that algorithm knows the bit operations too.
  virtual bool combines_bits() const { return true; }
  /// How often a rank may look whether its peers have come before it lets others run; 0 where a look
  /// may cost more than the call.
  virtual int polls_at_once() const { return 0; }
  /// True if a call becomes calls of other engines, each of which is chosen there.
  virtual bool delegates() const { return false; }
  /// True if peers read and write each other's buffers: then step lists need no sends.
  virtual bool shares_memory() const = 0;
  /// The same of one peer.
  virtual bool shares_memory_with(int /*rank*/) const { return shares_memory(); }
  /// The ranks as rings and trees of messages should join them; empty: by number.
  virtual std::span<const int> order() const { return {}; }

  /// The request's ticket; tickets grow by one. Starts what can start at once.
  virtual Result<uint64_t> submit(const Request& request, const Choice& choice) = 0;
  /// Bounded, non-blocking work. An error is final.
  virtual Status advance() = 0;
  /// Refuses when a peer has gone or the deadline has passed, for callers that poll.
  virtual Status check() = 0;
  /// Whether the call's result is here. What an engine that failed has not done, it never will have:
  /// advance() tells.
  virtual bool done(uint64_t ticket) const = 0;
  /// True while an open call goes on only when this rank drives it; a device goes on by itself.
  virtual bool needs_host() const { return true; }
  /// True if no call is open here and another rank has begun one: a message waits to be received.
  virtual bool called() const { return false; }
  /// Drives the engine until the ticket is done, and `others` meanwhile, which lets ranks wait for
  /// the calls of several groups in different orders.
  virtual Status wait(uint64_t ticket, std::span<Engine* const> others) = 0;
  /// Ends the call and the engine on every rank; false if the call is complete here.
  /// Thread  any.
  virtual Result<bool> cancel(uint64_t /*ticket*/) {
    return base::unsupported("engine " + std::string(name()) + " cannot cancel a call");
  }
  /// The ranks that have begun the call, and those that have its result.
  /// Thread  any.
  virtual Result<std::vector<int>> arrived(uint64_t /*ticket*/) const { return no_flags(); }
  virtual Result<std::vector<int>> delivered(uint64_t /*ticket*/) const { return no_flags(); }

  /// Nanoseconds spent moving and reducing so far.
  virtual int64_t busy_ns() const = 0;
  /// As Stats::times, where a caller drives the engine.
  virtual std::optional<CallTimes> times() const { return std::nullopt; }
  /// Bytes of other ranks' memory read or written so far.
  virtual int64_t wire_bytes() const { return 0; }
  /// Stats::network_bytes so far.
  virtual int64_t network_bytes() const { return 0; }

 private:
  Status no_flags() const {
    return base::unsupported("engine " + std::string(name()) +
                             " has no flags of other ranks to look at; ask a group over shared "
                             "memory");
  }
};

}  // namespace hanji::comm
