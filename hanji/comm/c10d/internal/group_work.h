#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/comm/c10d/internal/staging.h"
#include "hanji/comm/work.h"

namespace hanji::comm::c10d {

using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

/// What a call of c10d is called, what it was given, and how long it may take.
struct CallName {
  ::c10d::OpType type = ::c10d::OpType::UNKNOWN;
  const char* title = "";              ///< A literal: "hanji:all_reduce", as profilers show it.
  std::chrono::milliseconds limit{0};  ///< 0: the group's own deadline ends it.
  Tensors inputs{};                    ///< Whose sizes profilers show.
};

/// c10d's view of our Work: complete when the group says so, with a future over its tensors.
class GroupWork final : public ::c10d::Work {
 public:
  GroupWork(int rank, const CallName& name, uint64_t sequence, Tensors outputs);

  /// Told before a wait() that reached the call's own limit throws.
  void on_timeout(std::function<void(const Status&)> told) { on_timeout_ = std::move(told); }
  /// Does `then`, if all is well so far, and ends the call.
  void complete_after(const std::function<void()>& then, const Status& status, int source = -1);
  /// What wait() drives, if the call has no limit of its own.
  void driven_by(const hanji::comm::Work& work) { work_ = WeakWork(work); }
  /// Ends the call; only the first word counts.
  void complete(const Status& status, int source = -1);

  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_; }
  Tensors result() override { return outputs_; }
  uint64_t getSequencenumber() const override { return sequence_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void drive();
  bool ends_within(std::chrono::milliseconds limit, std::unique_lock<std::mutex>& lock);

  const CallName name_;
  const uint64_t sequence_;
  WeakWork work_;  ///< Not owned: the group's own thread must not end the group.
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::function<void(const Status&)> on_timeout_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> source_ = -1;
};

/// Complete when all of `parts` are; fails with the first of them that does.
WorkPtr join_works(int rank, const std::vector<WorkPtr>& parts);

}  // namespace hanji::comm::c10d
