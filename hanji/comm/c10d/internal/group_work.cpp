#include "hanji/comm/c10d/internal/group_work.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hanji/base/clock.h"

namespace hanji::comm::c10d {
namespace {

/// c10d's own words for a deadline that passed come first: programs look for them.
std::exception_ptr to_exception(const Status& status) {
  const std::string_view kTimedOut = "Timed out waiting";
  const bool late = status.code() == Code::kTimeout && !status.message().starts_with(kTimedOut);
  const std::string kind = late ? fmt::format("{}: ", kTimedOut) : "";
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                            fmt::format("hanji: {}{}", kind, status.message())));
}

}  // namespace

GroupWork::GroupWork(int rank, const CallName& name, uint64_t sequence, Tensors outputs)
    : ::c10d::Work(rank, name.type, name.title, name.inputs),
      name_{name.type, name.title, name.limit},
      sequence_(sequence),
      outputs_(std::move(outputs)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void GroupWork::complete(const Status& status, int source) {
  if (ended_.exchange(true)) return;
  source_ = source;
  if (status.ok()) {
    future_->markCompleted(c10::IValue(outputs_));
    finish();
  } else {
    const auto error = to_exception(status);
    future_->setErrorIfNeeded(error);
    finish(error);
  }
}

void GroupWork::complete_after(const std::function<void()>& then, const Status& status,
                               int source) {
  if (!status.ok() || !then) return complete(status, source);
  try {
    const at::NoGradGuard no_grad;
    const auto inferred = [](const at::Tensor& tensor) { return tensor.is_inference(); };
    const bool inference = std::any_of(outputs_.begin(), outputs_.end(), inferred);
    const c10::InferenceMode as_the_caller(inference);  // who may have been another thread
    then();
    complete({}, source);
  } catch (const c10::Error& error) {
    complete(base::invalid_argument(error.what_without_backtrace()), source);
  } catch (const std::exception& error) {
    complete(base::internal(error.what()), source);
  }
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout > std::chrono::milliseconds(0) ? timeout : name_.limit;
  if (limit <= std::chrono::milliseconds(0)) drive();
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return completed_; };
  if (limit <= std::chrono::milliseconds(0)) {
    cv_.wait(lock, ended);
  } else if (!ends_within(limit, lock)) {
    lock.unlock();
    const Status late = base::timeout(fmt::format(
        "Timed out waiting {}ms for the other ranks in {} (call {} of rank {}); after that timeout "
        "the ranks no longer agree on their calls: destroy the group on all of them",
        limit.count(), name_.title, sequence_, rank_));
    if (limit == name_.limit && on_timeout_) on_timeout_(late);
    complete(late);
    lock.lock();
    cv_.wait(lock, ended);
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

bool GroupWork::ends_within(std::chrono::milliseconds limit, std::unique_lock<std::mutex>& lock) {
  const auto deadline = base::Deadline::after(limit);
  constexpr std::chrono::nanoseconds kLook = std::chrono::hours(1);
  while (!completed_ && !deadline.passed()) {
    cv_.wait_for(lock, std::min(deadline.remaining(), kLook));
  }
  return completed_;
}

// Faster than to be woken by the group's thread, which ends the call all the same if this fails.
void GroupWork::drive() {
  try {
    if (!isCompleted()) work_.lock().wait();
  } catch (const Error&) {
  }
}

WorkPtr join_works(int rank, const std::vector<WorkPtr>& parts) {
  Tensors outputs;
  for (const WorkPtr& part : parts) {
    for (const at::Tensor& tensor : part->result()) outputs.push_back(tensor);
  }
  const CallName name{::c10d::OpType::COALESCED, "hanji:coalesced"};
  auto whole = c10::make_intrusive<GroupWork>(rank, name, 0, std::move(outputs));
  if (parts.empty()) whole->complete({});
  const auto left = std::make_shared<std::atomic<size_t>>(parts.size());
  for (const WorkPtr& part : parts) {
    part->getFuture()->addCallback([whole, left](c10::ivalue::Future& future) {
      if (future.hasError()) {
        whole->complete(base::peer_lost(future.tryRetrieveErrorMessage()));
      } else if (left->fetch_sub(1) == 1) {
        whole->complete({});
      }
    });
  }
  return whole;
}

}  // namespace hanji::comm::c10d
