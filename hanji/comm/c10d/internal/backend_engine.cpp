#include "hanji/comm/c10d/internal/backend_engine.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/c10d/internal/step_walk.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm::c10d {
namespace {

using schedule::Routine;

::c10d::ReduceOp to_c10d(schedule::ReduceOp op) {
  switch (op) {
    case schedule::ReduceOp::kSum: return ::c10d::ReduceOp::SUM;
    case schedule::ReduceOp::kAvg: return ::c10d::ReduceOp::SUM;  // run_native() divides
    case schedule::ReduceOp::kMin: return ::c10d::ReduceOp::MIN;
    case schedule::ReduceOp::kMax: return ::c10d::ReduceOp::MAX;
    case schedule::ReduceOp::kProd: return ::c10d::ReduceOp::PRODUCT;
    case schedule::ReduceOp::kBitAnd: return ::c10d::ReduceOp::BAND;
    case schedule::ReduceOp::kBitOr: return ::c10d::ReduceOp::BOR;
    case schedule::ReduceOp::kBitXor: return ::c10d::ReduceOp::BXOR;
  }
  throw Error(base::internal("unknown reduction"));
}

/// The code behind a backend's exception, which has only words.
Status to_status(const std::exception& error, const std::string& where) {
  const std::string what = error.what();
  const auto says = [&what](std::string_view words) { return what.find(words) != what.npos; };
  const std::string message = fmt::format("{}: {}", where, what.substr(0, what.find('\n')));
  if (says("imed out") || says("imeout")) return base::timeout(message);
  if (says("closed by peer") || says("reset by peer") || says("Broken pipe")) {
    return base::peer_lost(message);
  }
  return base::internal(message);
}

/// Stats::network_bytes of one call.
int64_t sent_bytes(const Request& request, const Choice& choice, int rank, int size) {
  int64_t elements = 0;
  if (choice.steps) {
    for (const schedule::Step& step : choice.steps->per_rank[rank]) {
      if (step.kind == schedule::StepKind::kSend) elements += step.count;
    }
  } else if (request.routine == Routine::kBroadcast) {
    elements = rank == request.root ? request.count : 0;
  } else if (request.routine == Routine::kAllReduce) {
    elements = 2 * (size - 1) * request.count / size;
  } else {
    elements = (size - 1) * request.count;  // shares
  }
  return elements * static_cast<int64_t>(base::size_of(request.dtype));
}

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view(-1).view(at::kByte); }

}  // namespace

BackendEngine::BackendEngine(c10::intrusive_ptr<::c10d::Backend> backend,
                             const GroupOptions& options)
    : backend_(std::move(backend)),
      name_(backend_->getBackendName()),
      rank_(backend_->getRank()),
      size_(backend_->getSize()),
      deadline_(std::chrono::ceil<std::chrono::milliseconds>(options.deadline)),
      recorder_(options.recorder),
      thread_([this] { serve(); }) {}

BackendEngine::~BackendEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool BackendEngine::native(Routine routine) const {
  return routine == Routine::kBarrier || routine == Routine::kBroadcast ||
         routine == Routine::kAllGather || routine == Routine::kReduceScatter ||
         routine == Routine::kAllReduce;
}

Result<uint64_t> BackendEngine::submit(const Request& request, const Choice& choice) {
  if (choice.steps) HANJI_RETURN_IF_ERROR(check_steps(*choice.steps, rank(), request.op));
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return status_;
  calls_.push_back({request, choice, ++submitted_, base::now_ns()});
  changed_.notify_all();
  return submitted_;
}

Status BackendEngine::advance() {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool BackendEngine::done(uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return ticket <= completed_ || !status_.ok();
}

Status BackendEngine::wait(uint64_t ticket, std::span<Engine* const> /*others*/) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ticket <= completed_ || !status_.ok(); });
  return ticket <= completed_ ? Status() : status_;
}

int64_t BackendEngine::busy_ns() const {
  const std::lock_guard lock(mutex_);
  return busy_ns_;
}

int64_t BackendEngine::network_bytes() const {
  const std::lock_guard lock(mutex_);
  return network_bytes_;
}

void BackendEngine::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
    if (stop_ || !status_.ok()) return;
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    const int64_t start_ns = base::now_ns();
    const Status status = run(call);
    const int64_t spent_ns = base::now_ns() - start_ns;
    const int64_t sent = status.ok() ? sent_bytes(call.request, call.choice, rank(), size()) : 0;
    if (status.ok()) record(call);
    lock.lock();
    busy_ns_ += spent_ns;
    network_bytes_ += sent;
    if (status.ok()) {
      completed_ = call.sequence;
    } else {
      status_ = status;
    }
    changed_.notify_all();
  }
}

Status BackendEngine::run(const Call& call) {
  try {
    if (!call.request.agreed) HANJI_RETURN_IF_ERROR(agree(call));
    if (call.choice.steps) {
      StepWalk(*backend_, call.request, *call.choice.steps, deadline_).run();
    } else {
      run_native(call.request);
    }
    return {};
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  } catch (const std::exception& error) {
    const Description one = describe(call.request, call.choice, call.sequence);
    return to_status(error, fmt::format("rank {} of {}: {} at {}", rank(), size(),
                                        schedule::name_of(call.request.routine), one.where.data()));
  }
}

Status BackendEngine::agree(const Call& call) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Description));
  const Description mine = describe(call.request, call.choice, call.sequence);
  std::vector<at::Tensor> input{at::empty({kBytes}, at::kByte)};
  std::memcpy(input[0].data_ptr(), &mine, sizeof(mine));
  std::vector<std::vector<at::Tensor>> output(1);
  for (int rank = 0; rank < size(); ++rank) output[0].push_back(at::empty({kBytes}, at::kByte));
  ::c10d::AllgatherOptions options;
  options.timeout = deadline_;
  backend_->allgather(output, input, options)->wait(deadline_);
  std::vector<Description> ranks(size());
  for (int rank = 0; rank < size(); ++rank) {
    std::memcpy(&ranks[rank], output[0][rank].const_data_ptr(), sizeof(Description));
    ranks[rank].where.back() = 0;
  }
  return compare(ranks);
}

void BackendEngine::run_native(const Request& request) {
  const auto finish = [this](const c10::intrusive_ptr<::c10d::Work>& work) {
    work->wait(deadline_);
  };
  if (request.routine == Routine::kBarrier) {
    ::c10d::BarrierOptions options;
    options.timeout = deadline_;
    return finish(backend_->barrier(options));
  }
  if (request.count == 0) return;
  if (request.routine == Routine::kBroadcast) {
    std::vector<at::Tensor> tensors{as_bytes(request.output)};
    ::c10d::BroadcastOptions options;
    options.rootRank = request.root;
    options.timeout = deadline_;
    return finish(backend_->broadcast(tensors, options));
  }
  at::Tensor output = request.output.detach().view(-1);
  if (request.routine == Routine::kAllGather) {
    at::Tensor bytes = as_bytes(output);
    at::Tensor input = as_bytes(request.input).clone();  // it may lie in the output
    ::c10d::AllgatherOptions options;
    options.timeout = deadline_;
    return finish(backend_->_allgather_base(bytes, input, options));
  }
  if (request.routine == Routine::kAllReduce) {
    std::vector<at::Tensor> tensors{output};
    ::c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(request.op);
    options.timeout = deadline_;
    finish(backend_->allreduce(tensors, options));
  } else {
    at::Tensor input = request.input.detach().view(-1).clone();  // the output may lie in it
    ::c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(request.op);
    options.timeout = deadline_;
    finish(backend_->_reduce_scatter_base(output, input, options));
  }
  if (request.op == schedule::ReduceOp::kAvg) output.div_(size());
}

void BackendEngine::record(const Call& call) const {
  if (recorder_ == nullptr) return;
  trace::Event event;
  event.start_ns = call.start_ns;
  event.end_ns = base::now_ns();
  event.name = recorder_->intern(schedule::name_of(call.request.routine));
  event.lane = trace::Lane::kCommunication;
  event.category = trace::Category::kCommunication;
  event.step = recorder_->step();
  event.bytes = call.request.count * static_cast<int64_t>(base::size_of(call.request.dtype));
  event.sequence = static_cast<int64_t>(call.sequence);
  event.group_size = size();
  event.dtype = static_cast<uint8_t>(call.request.dtype);
  recorder_->add(event);
}

}  // namespace hanji::comm::c10d
