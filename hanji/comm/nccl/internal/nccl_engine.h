#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/comm/nccl/internal/native.h"
#include "hanji/comm/nccl/internal/stream.h"
#include "hanji/comm/work.h"

namespace hanji::comm::nccl {

/// What an engine is made of.
struct Parts {
  std::shared_ptr<const Library> library = {};
  Comm comm = nullptr;  ///< Owned by the engine from then on; null while `opening`.
  std::function<std::optional<Result<Comm>>()> opening = {};  ///< Never blocks.
  std::shared_ptr<Stream> stream = {};
  c10::Device device = c10::kCPU;
  int rank = 0;
  int size = 1;
  RankNames names = {};
  /// Every rank's bytes, one after another, to every rank over the CPU, within the deadline; for
  /// nobody else's calls.
  std::function<Work(at::Tensor& all, const at::Tensor& mine, std::chrono::nanoseconds deadline)>
      exchange = {};
};

/// NCCL as an engine, for tensors of one device.
///
/// Before a call is launched, the ranks' descriptions of it travel over the CPU and are compared; so
/// a mismatch or a rank that does not come is named instead of hanging in a kernel.
/// Then it runs on a stream of its own, after what torch had launched at submit(), while the host
/// goes on.
/// wait()  returns once the call is on that stream, and holds torch's current stream until the
///         result is there; done() is true once the device has come so far. The host itself waits
///         for the device as long as other calls of the rank still need it to be launched, or else
///         it might look at the result while a peer does the same, neither launching what the other
///         waits for; and for a call with a deadline of its own, so as to keep that.
/// Errors  a call that the device does not finish within its deadline, NCCL's own errors, and those
///         of the descriptions' way: final, and the communicator is aborted, which ends its kernels.
class NcclEngine final : public Engine {
 public:
  NcclEngine(Parts parts, const GroupOptions& options);
  ~NcclEngine() override;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return parts_.rank; }
  int size() const override { return parts_.size; }
  bool serves(c10::Device device) const override { return device == parts_.device; }
  bool native(schedule::Routine routine, Shares shares) const override;
  c10::Device device() const override { return parts_.device; }
  bool combines_bits() const override { return false; }
  bool shares_memory() const override { return false; }
  bool needs_host() const override;

  Result<uint64_t> submit(const Request& request, const Choice& choice) override;
  Status advance() override;
  Status check() override;
  bool done(uint64_t ticket) const override;
  Status wait(uint64_t ticket, std::span<Engine* const> others) override;
  int64_t busy_ns() const override { return 0; }  // the host moves nothing

 private:
  struct Call {
    Request request;
    Choice choice;
    std::string where;             // for messages
    at::Tensor said;               // the ranks' descriptions, one after another
    Work exchange;                 // them
    std::shared_ptr<Event> ready;  // the inputs are there
    std::shared_ptr<Event> ended;  // null until launched
    int64_t start_ns = 0;
    int64_t start_running_ns = 0;  ///< The same, of base::running_ns().
    int64_t launched_running_ns = 0;
  };

  Channel channel() const;
  Status fail(Status status);
  Status step();  // everything of advance() that may fail
  Result<bool> connected();
  std::chrono::nanoseconds deadline_of(const Call& call) const;
  bool may_leave(const Call& call, std::span<Engine* const> others) const;
  Status late(const Call& call) const;
  static Result<bool> is_told(Call& call);
  Status launch(Call& call);
  void retire();

  Parts parts_;
  const std::chrono::nanoseconds deadline_;  // of calls without one of their own
  trace::Recorder* const recorder_;
  const int group_;  ///< GroupOptions::id.
  at::Tensor barrier_token_;
  std::deque<Call> calls_;
  uint64_t completed_ = 0;
  Status status_;  // the first error; final
};

}  // namespace hanji::comm::nccl
