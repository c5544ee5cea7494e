#include "hanji/comm/work.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "hanji/comm/internal/call_batch.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm {
namespace {

/// Tells one waiter when the last of several calls is complete, with the first error.
class Countdown {
 public:
  Countdown(size_t count, std::function<void(const Status&)> told)
      : left_(count), told_(std::move(told)) {}

  void end_one(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = status;
      if (--left_ != 0) return;
    }
    told_(status_);
  }

 private:
  std::mutex mutex_;
  size_t left_;
  Status status_;
  std::function<void(const Status&)> told_;
};

}  // namespace

Work::Work(std::shared_ptr<GroupState> group, uint64_t sequence, uint64_t ticket)
    : group_(std::move(group)), sequence_(sequence), ticket_(ticket) {}

Work::Work(std::shared_ptr<const CallBatch> batch) : batch_(std::move(batch)) {}

void Work::wait() {
  if (group_) group_->wait(sequence_);
  if (!batch_) return;
  for (Work work : batch_->works()) work.wait();
}

bool Work::done() {
  if (group_) return group_->done(sequence_);
  bool all = true;
  if (batch_) {
    for (Work work : batch_->works()) all &= work.done();
  }
  return all;
}

void Work::then(std::function<void(const Status&)> told) {
  if (group_) return group_->then(sequence_, std::move(told));
  if (!batch_ || batch_->works().empty()) return told({});
  const auto countdown = std::make_shared<Countdown>(batch_->works().size(), std::move(told));
  for (Work work : batch_->works()) {
    work.then([countdown](const Status& status) { countdown->end_one(status); });
  }
}

bool Work::cancel() {
  if (group_) return group_->cancel(ticket_);
  bool any = false;
  if (batch_) {
    for (Work work : batch_->works()) any |= work.cancel();
  }
  return any;
}

std::vector<int> Work::arrived() const { return ranks_at(Flag::kArrived); }
std::vector<int> Work::delivered() const { return ranks_at(Flag::kDelivered); }

std::vector<int> Work::ranks_at(Flag flag) const {
  if (group_) {
    const auto& engine = group_->engine();
    auto ranks = (flag == Flag::kArrived ? engine.arrived(ticket_) : engine.delivered(ticket_));
    std::vector<int> named = std::move(ranks).or_throw();
    if (ends_[0] >= 0) {
      for (int& rank : named) rank = ends_[rank];
      std::ranges::sort(named);
    }
    return named;
  }
  if (!batch_) return {};
  std::vector<int> common;
  bool first = true;
  for (const Work& work : batch_->works()) {
    const std::vector<int> ranks = work.ranks_at(flag);
    std::vector<int> both;
    std::ranges::set_intersection(common, ranks, std::back_inserter(both));
    common = first ? ranks : both;
    first = false;
  }
  return common;
}

}  // namespace hanji::comm
