#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/description.h"
#include "hanji/comm/internal/engine.h"

namespace c10d {
class Backend;
}

namespace hanji::comm::c10d {

/// A c10d backend as an engine, for CPU tensors. A thread carries the calls out one by one, because
/// the works of c10d's sends can only be waited for, not polled.
class BackendEngine final : public Engine {
 public:
  BackendEngine(c10::intrusive_ptr<::c10d::Backend> backend, const GroupOptions& options);
  /// Waits for the call under way; the backend's deadline bounds it.
  ~BackendEngine() override;

  std::string_view name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool serves(c10::Device device) const override { return device.is_cpu(); }
  bool native(schedule::Routine routine) const override;
  bool shares_memory() const override { return false; }

  Result<uint64_t> submit(const Request& request, const Choice& choice) override;
  Status advance() override;
  bool done(uint64_t ticket) const override;
  Status check() override { return advance(); }  // the backend has deadlines of its own
  Status wait(uint64_t ticket, std::span<Engine* const> others) override;
  int64_t busy_ns() const override;
  int64_t network_bytes() const override;

 private:
  struct Call {
    Request request;
    Choice choice;
    uint64_t sequence;
    int64_t start_ns;
  };

  void serve();
  Status run(const Call& call);
  Status agree(const Call& call);
  void run_native(const Request& request);
  void record(const Call& call) const;

  const c10::intrusive_ptr<::c10d::Backend> backend_;
  const std::string name_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds deadline_;
  trace::Recorder* const recorder_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  int64_t busy_ns_ = 0;
  int64_t network_bytes_ = 0;
  Status status_;  // the first error; final
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hanji::comm::c10d
