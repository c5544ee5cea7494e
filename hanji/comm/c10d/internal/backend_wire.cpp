#include "hanji/comm/c10d/internal/backend_wire.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "hanji/base/sigpipe_guard.h"

namespace hanji::comm::c10d {
namespace {

using schedule::Routine;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using Tensors = std::vector<at::Tensor>;

::c10d::ReduceOp to_c10d(schedule::ReduceOp op) {
  switch (op) {
    case schedule::ReduceOp::kSum: return ::c10d::ReduceOp::SUM;
    case schedule::ReduceOp::kAvg: return ::c10d::ReduceOp::SUM;  // run() divides
    case schedule::ReduceOp::kMin: return ::c10d::ReduceOp::MIN;
    case schedule::ReduceOp::kMax: return ::c10d::ReduceOp::MAX;
    case schedule::ReduceOp::kProd: return ::c10d::ReduceOp::PRODUCT;
    case schedule::ReduceOp::kBitAnd: return ::c10d::ReduceOp::BAND;
    case schedule::ReduceOp::kBitOr: return ::c10d::ReduceOp::BOR;
    case schedule::ReduceOp::kBitXor: return ::c10d::ReduceOp::BXOR;
    case schedule::ReduceOp::kPremulSum: break;  // choose() refuses it
  }
  throw Error(base::internal("unknown reduction"));
}

/// The code behind a backend's exception, which has only words.
Status to_status(const std::exception& error) {
  const std::string what = error.what();
  const auto says = [&what](std::string_view words) { return what.find(words) != what.npos; };
  const std::string message = what.substr(0, what.find('\n'));
  if (says("imed out") || says("imeout")) return base::timeout(message);
  if (says("closed by peer") || says("reset by peer") || says("Broken pipe")) {
    return base::peer_lost(message);
  }
  return base::internal(message);
}

template <class Call>
auto translated(Call&& call) -> decltype(call()) {
  const base::SigpipeGuard guard;  // Gloo writes to a peer that has died, from this thread too
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(to_status(error));
  }
}

/// What is left of a deadline, as c10d takes it: 0 would be no limit at all.
std::chrono::milliseconds left(base::Deadline until) {
  constexpr std::chrono::nanoseconds kMaxWait = std::chrono::hours(24 * 365);
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(std::min(until.remaining(), kMaxWait));
  return std::max(rest, std::chrono::milliseconds(1));
}

/// A work of a backend, the tensors that it uses, and what is left to do after it.
class PendingWork final : public Pending {
 public:
  PendingWork(WorkPtr work, Tensors tensors, base::Deadline until, std::function<void()> after = {})
      : work_(std::move(work)),
        tensors_(std::move(tensors)),
        until_(until),
        after_(std::move(after)) {}

  bool done() override {
    translated([this] { return work_->wait(left(until_)); });
    if (after_) std::exchange(after_, {})();
    return true;
  }

 private:
  const WorkPtr work_;
  const Tensors tensors_;
  const base::Deadline until_;
  std::function<void()> after_;
};

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view(-1).view(at::kByte); }

at::Tensor bytes_at(const void* data, int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::kByte);
}

WorkPtr post_send(SharedBackend& shared, Tensors& tensors, int peer, int tag) {
  const std::lock_guard lock(shared.mutex);
  return translated([&] { return shared.backend->send(tensors, peer, tag); });
}

WorkPtr post_receive(SharedBackend& shared, Tensors& tensors, int peer, int tag) {
  const std::lock_guard lock(shared.mutex);
  return translated([&] { return shared.backend->recv(tensors, peer, tag); });
}

/// A call of the backend's own routine: its tensors, and until when it may run.
struct Native {
  SharedBackend& shared;
  const Request& request;
  Tensors& tensors;
  base::Deadline until;

  template <class Options>
  Options options() const {
    Options made;
    made.timeout = left(until);
    return made;
  }
};

WorkPtr post_broadcast(const Native& call) {
  auto options = call.options<::c10d::BroadcastOptions>();
  options.rootRank = call.request.root;
  call.tensors = {as_bytes(call.request.output)};
  return call.shared.backend->broadcast(call.tensors, options);
}

WorkPtr post_all_gather(const Native& call) {
  auto options = call.options<::c10d::AllgatherOptions>();
  call.tensors = {as_bytes(call.request.output),
                  as_bytes(call.request.input).clone()};  // it may lie in there
  return call.shared.backend->_allgather_base(call.tensors[0], call.tensors[1], options);
}

WorkPtr post_all_reduce(const Native& call) {
  auto options = call.options<::c10d::AllreduceOptions>();
  options.reduceOp = to_c10d(call.request.op);
  call.tensors = {call.request.output.detach().view(-1)};
  return call.shared.backend->allreduce(call.tensors, options);
}

WorkPtr post_reduce_scatter(const Native& call) {
  auto options = call.options<::c10d::ReduceScatterOptions>();
  options.reduceOp = to_c10d(call.request.op);
  call.tensors = {call.request.output.detach().view(-1),
                  call.request.input.detach().view(-1).clone()};
  return call.shared.backend->_reduce_scatter_base(call.tensors[0], call.tensors[1], options);
}

}  // namespace

SharedBackend::SharedBackend(c10::intrusive_ptr<::c10d::Backend> called)
    : backend(std::move(called)),
      name(backend->getBackendName()),
      rank(backend->getRank()),
      size(backend->getSize()) {}

SharedBackend::~SharedBackend() = default;

/// Receives from all, sends to all.
class BackendWire::Gathering final : public Pending {
 public:
  Gathering(BackendWire& wire, std::span<const std::byte> mine, std::span<std::byte> all)
      : until_(wire.until_),
        all_(all),
        received_(at::empty({static_cast<int64_t>(all.size())}, at::kByte)),
        absent_(wire.absent_) {
    const auto bytes = static_cast<int64_t>(mine.size());
    Tensors part{received_.narrow(0, wire.rank_ * bytes, bytes)};
    part[0].copy_(bytes_at(mine.data(), bytes));
    Tensors sent{part[0].clone()};
    for (int i = 1; i < wire.size(); ++i) {  // everybody begins with another one
      const int peer = (wire.rank_ + i) % wire.size();
      part[0] = received_.narrow(0, peer * bytes, bytes);
      receives_.push_back(
          {peer, post_receive(*wire.shared_, part, wire.members_[peer], wire.tag_)});
      sends_.push_back(post_send(*wire.shared_, sent, wire.members_[peer], wire.tag_));
    }
  }

  bool done() override {
    translated([this] {
      for (auto next = receives_.begin(); next != receives_.end(); ++next) wait_for(next);
      for (const WorkPtr& work : sends_) work->wait(left(until_));
    });
    std::memcpy(all_.data(), received_.const_data_ptr(), all_.size());
    return true;
  }

 private:
  struct Receive {
    int peer;
    WorkPtr work;
  };

  /// When one does not come, those behind it have come by now or have not either.
  void wait_for(std::vector<Receive>::iterator one) {
    try {
      one->work->wait(left(until_));
    } catch (const std::exception&) {
      *absent_ = {one->peer};
      for (++one; one != receives_.end(); ++one) {
        if (!has_come(*one)) absent_->push_back(one->peer);
      }
      std::ranges::sort(*absent_);
      throw;
    }
  }

  static bool has_come(const Receive& one) {
    try {
      return one.work->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      return false;
    }
  }

  const base::Deadline until_;
  const std::span<std::byte> all_;
  const at::Tensor received_;
  const std::shared_ptr<std::vector<int>> absent_;
  std::vector<Receive> receives_;
  std::vector<WorkPtr> sends_;
};

namespace {

/// Of a group's collectives, and of messages to a higher and a lower rank.
constexpr int kGroupTag = 0;
constexpr int kUpwardsTag = 1;
constexpr int kDownwardsTag = 2;

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

BackendWire::BackendWire(std::shared_ptr<SharedBackend> shared)
    : shared_(std::move(shared)),
      members_(all_ranks(shared_->size)),
      rank_(shared_->rank),
      tag_(kGroupTag) {}

BackendWire::BackendWire(std::shared_ptr<SharedBackend> shared, int sender, int receiver)
    : shared_(std::move(shared)),
      members_{sender, receiver},
      rank_(shared_->rank == sender ? 0 : 1),
      tag_(sender < receiver ? kUpwardsTag : kDownwardsTag) {}

bool BackendWire::native(Routine routine, Shares shares) const {
  return tag_ == kGroupTag && shares == Shares::kEven &&
         (routine == Routine::kBroadcast || routine == Routine::kAllGather ||
          routine == Routine::kReduceScatter || routine == Routine::kAllReduce);
}

std::unique_ptr<Pending> BackendWire::send(const void* from, int64_t bytes, int peer) {
  Tensors tensors{bytes_at(from, bytes)};
  WorkPtr work = post_send(*shared_, tensors, members_[peer], tag_);
  return std::make_unique<PendingWork>(std::move(work), std::move(tensors), until_);
}

std::unique_ptr<Pending> BackendWire::receive(void* to, int64_t bytes, int peer) {
  Tensors tensors{bytes_at(to, bytes)};
  WorkPtr work = post_receive(*shared_, tensors, members_[peer], tag_);
  return std::make_unique<PendingWork>(std::move(work), std::move(tensors), until_);
}

std::unique_ptr<Pending> BackendWire::gather(std::span<const std::byte> mine,
                                             std::span<std::byte> all) {
  absent_->clear();
  return std::make_unique<Gathering>(*this, mine, all);
}

std::unique_ptr<Pending> BackendWire::run(const Request& request) {
  Tensors tensors;
  const Native call{*shared_, request, tensors, until_};
  const std::lock_guard lock(shared_->mutex);
  WorkPtr work = translated([&] {
    switch (request.routine) {
      case Routine::kBroadcast: return post_broadcast(call);
      case Routine::kAllGather: return post_all_gather(call);
      case Routine::kAllReduce: return post_all_reduce(call);
      case Routine::kReduceScatter: return post_reduce_scatter(call);
      default: throw Error(base::internal("no routine of c10d"));
    }
  });
  std::function<void()> divide;
  if (schedule::reduces(request.routine) && request.op == schedule::ReduceOp::kAvg) {
    divide = [output = tensors[0], ranks = size()]() mutable {
      output.is_floating_point() ? output.div_(ranks) : output.div_(ranks, "trunc");
    };
  }
  return std::make_unique<PendingWork>(std::move(work), std::move(tensors), until_,
                                       std::move(divide));
}

}  // namespace hanji::comm::c10d
