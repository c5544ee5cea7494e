#include "hanji/comm/c10d/internal/any_source.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "hanji/base/start_thread.h"
#include "hanji/comm/message.h"

namespace hanji::comm::c10d {
namespace {

constexpr auto kPollInterval = std::chrono::microseconds(100);

}  // namespace

AnySource::AnySource(const Group& group) : group_(group) {
  thread_ = base::start_thread("start the thread that receives from any rank",
                               [this](const std::stop_token& stop) { drive(stop); });
}

AnySource::~AnySource() {
  thread_.request_stop();
  thread_.join();
  for (Call& call : calls_) {
    call.done(base::peer_lost("recv from any rank: the group was shut down before anybody sent"),
              -1);
  }
}

void AnySource::add(const at::Tensor& tensor, uint64_t tag, Done done) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(
      {tensor, tag, base::Deadline::after(group_.options().deadline), std::move(done)});
  changed_.notify_all();
}

void AnySource::drive(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !calls_.empty(); })) {
    Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    bool served = false;
    while (!served && !stop.stop_requested()) {
      served = serve(call);
      if (!served) std::this_thread::sleep_for(kPollInterval);
    }
    lock.lock();
    if (!served) calls_.push_front(std::move(call));
    if (stop.stop_requested()) return;
  }
}

bool AnySource::serve(Call& call) {
  try {
    Received received =
        recv_if_sent(call.tensor, group_, last_, {.tag = call.tag, .label = "c10d"});
    if (received.from >= 0) {
      last_ = received.from;
      received.work.then(
          [done = call.done, from = last_](const Status& status) { done(status, from); });
      return true;
    }
    if (!call.deadline.passed()) return false;
    call.done(base::timeout(fmt::format(
                  "recv from any rank: no other rank of group {} sent anything to rank {} in time",
                  group_.name(), group_.rank())),
              -1);
  } catch (const Error& error) {
    call.done({error.code(), error.what()}, -1);
  } catch (const std::exception& error) {
    call.done(base::internal(error.what()), -1);
  }
  return true;
}

}  // namespace hanji::comm::c10d
