#include "hanji/comm/c10d/internal/backend_wire.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

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
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(to_status(error));
  }
}

/// Works of a backend, the tensors they use, and what is left to do after them.
class PendingWorks final : public Pending {
 public:
  PendingWorks(std::vector<WorkPtr> works, Tensors tensors, std::chrono::milliseconds deadline,
               std::function<void()> after = {})
      : works_(std::move(works)),
        tensors_(std::move(tensors)),
        deadline_(deadline),
        after_(std::move(after)) {}

  bool done() override {
    translated([this] {
      for (const WorkPtr& work : works_) work->wait(deadline_);
    });
    works_.clear();
    if (after_) std::exchange(after_, {})();
    return true;
  }

 private:
  std::vector<WorkPtr> works_;
  const Tensors tensors_;
  const std::chrono::milliseconds deadline_;
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

template <class Options>
Options options_of(const SharedBackend& shared) {
  Options options;
  options.timeout = shared.deadline;
  return options;
}

WorkPtr post_broadcast(SharedBackend& shared, const Request& request, Tensors& tensors) {
  auto options = options_of<::c10d::BroadcastOptions>(shared);
  options.rootRank = request.root;
  tensors = {as_bytes(request.output)};
  return shared.backend->broadcast(tensors, options);
}

WorkPtr post_all_gather(SharedBackend& shared, const Request& request, Tensors& tensors) {
  auto options = options_of<::c10d::AllgatherOptions>(shared);
  tensors = {as_bytes(request.output), as_bytes(request.input).clone()};  // it may lie in there
  return shared.backend->_allgather_base(tensors[0], tensors[1], options);
}

WorkPtr post_all_reduce(SharedBackend& shared, const Request& request, Tensors& tensors) {
  auto options = options_of<::c10d::AllreduceOptions>(shared);
  options.reduceOp = to_c10d(request.op);
  tensors = {request.output.detach().view(-1)};
  return shared.backend->allreduce(tensors, options);
}

WorkPtr post_reduce_scatter(SharedBackend& shared, const Request& request, Tensors& tensors) {
  auto options = options_of<::c10d::ReduceScatterOptions>(shared);
  options.reduceOp = to_c10d(request.op);
  tensors = {request.output.detach().view(-1), request.input.detach().view(-1).clone()};
  return shared.backend->_reduce_scatter_base(tensors[0], tensors[1], options);
}

}  // namespace

SharedBackend::SharedBackend(c10::intrusive_ptr<::c10d::Backend> called,
                             std::chrono::nanoseconds limit)
    : backend(std::move(called)),
      name(backend->getBackendName()),
      rank(backend->getRank()),
      size(backend->getSize()),
      deadline(std::chrono::ceil<std::chrono::milliseconds>(limit)) {}

SharedBackend::~SharedBackend() = default;

bool BackendWire::native(Routine routine, Shares shares) const {
  return shares == Shares::kEven &&
         (routine == Routine::kBroadcast || routine == Routine::kAllGather ||
          routine == Routine::kReduceScatter || routine == Routine::kAllReduce);
}

std::unique_ptr<Pending> BackendWire::send(const void* from, int64_t bytes, int peer) {
  Tensors tensors{bytes_at(from, bytes)};
  WorkPtr work = post_send(*shared_, tensors, peer, 0);
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(tensors),
                                        shared_->deadline);
}

std::unique_ptr<Pending> BackendWire::receive(void* to, int64_t bytes, int peer) {
  Tensors tensors{bytes_at(to, bytes)};
  WorkPtr work = post_receive(*shared_, tensors, peer, 0);
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(tensors),
                                        shared_->deadline);
}

std::unique_ptr<Pending> BackendWire::gather(std::span<const std::byte> mine,
                                             std::span<std::byte> all) {
  const auto bytes = static_cast<int64_t>(mine.size());
  Tensors input{bytes_at(mine.data(), bytes).clone()};
  std::vector<Tensors> output(1);
  for (int rank = 0; rank < size(); ++rank) output[0].push_back(at::empty({bytes}, at::kByte));
  const auto options = options_of<::c10d::AllgatherOptions>(*shared_);
  const std::lock_guard lock(shared_->mutex);
  WorkPtr work = translated([&] { return shared_->backend->allgather(output, input, options); });
  auto copy_out = [parts = output[0], all, bytes] {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      std::memcpy(all.data() + rank * bytes, parts[rank].const_data_ptr(), bytes);
    }
  };
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(input),
                                        shared_->deadline, std::move(copy_out));
}

std::unique_ptr<Pending> BackendWire::run(const Request& request) {
  Tensors tensors;
  const std::lock_guard lock(shared_->mutex);
  WorkPtr work = translated([&] {
    switch (request.routine) {
      case Routine::kBroadcast: return post_broadcast(*shared_, request, tensors);
      case Routine::kAllGather: return post_all_gather(*shared_, request, tensors);
      case Routine::kAllReduce: return post_all_reduce(*shared_, request, tensors);
      case Routine::kReduceScatter: return post_reduce_scatter(*shared_, request, tensors);
      default: throw Error(base::internal("no routine of c10d"));
    }
  });
  std::function<void()> divide;
  if (schedule::reduces(request.routine) && request.op == schedule::ReduceOp::kAvg) {
    divide = [output = tensors[0], ranks = size()]() mutable {
      output.is_floating_point() ? output.div_(ranks) : output.div_(ranks, "trunc");
    };
  }
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(tensors),
                                        shared_->deadline, std::move(divide));
}

BackendChannel::BackendChannel(std::shared_ptr<SharedBackend> shared, int sender, int receiver)
    : shared_(std::move(shared)), sender_(sender), receiver_(receiver) {}

std::unique_ptr<Pending> BackendChannel::send(const void* from, int64_t bytes, int /*peer*/) {
  Tensors tensors{bytes_at(from, bytes)};
  WorkPtr work = post_send(*shared_, tensors, peer(), sender_ < receiver_ ? 1 : 2);
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(tensors),
                                        shared_->deadline);
}

std::unique_ptr<Pending> BackendChannel::receive(void* to, int64_t bytes, int /*peer*/) {
  Tensors tensors{bytes_at(to, bytes)};
  WorkPtr work = post_receive(*shared_, tensors, peer(), sender_ < receiver_ ? 1 : 2);
  return std::make_unique<PendingWorks>(std::vector{std::move(work)}, std::move(tensors),
                                        shared_->deadline);
}

std::unique_ptr<Pending> BackendChannel::gather(std::span<const std::byte> mine,
                                                std::span<std::byte> all) {
  const auto bytes = static_cast<int64_t>(mine.size());
  std::memcpy(all.data() + rank() * bytes, mine.data(), mine.size());
  const int tag = sender_ < receiver_ ? 1 : 2;
  Tensors tensors{bytes_at(mine.data(), bytes), bytes_at(all.data() + (1 - rank()) * bytes, bytes)};
  Tensors out{tensors[0]}, in{tensors[1]};
  std::vector<WorkPtr> works{post_receive(*shared_, in, peer(), tag),
                             post_send(*shared_, out, peer(), tag)};
  return std::make_unique<PendingWorks>(std::move(works), std::move(tensors), shared_->deadline);
}

std::unique_ptr<Pending> BackendChannel::run(const Request&) {
  throw Error(base::internal("a channel has no routines of its own"));
}

}  // namespace hanji::comm::c10d
