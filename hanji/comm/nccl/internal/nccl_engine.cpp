#include "hanji/comm/nccl/internal/nccl_engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/run_clock.h"
#include "hanji/comm/internal/description.h"
#include "hanji/comm/internal/message_walk.h"
#include "hanji/comm/internal/record.h"
#include "hanji/comm/nccl/internal/device_walk.h"

namespace hanji::comm::nccl {
namespace {

constexpr auto kBytes = static_cast<int64_t>(sizeof(Description));

at::Tensor bytes_of(const Description& description) {
  at::Tensor bytes = at::empty({kBytes}, at::kByte);
  std::memcpy(bytes.data_ptr(), &description, sizeof(description));
  return bytes;
}

std::vector<Description> read_all(const at::Tensor& said) {
  std::vector<Description> ranks(said.numel() / kBytes);
  std::memcpy(ranks.data(), said.const_data_ptr(), said.nbytes());
  for (Description& one : ranks) one.way.back() = one.where.back() = 0;
  return ranks;
}

}  // namespace

NcclEngine::NcclEngine(Parts parts, const GroupOptions& options)
    : parts_(std::move(parts)),
      deadline_(options.deadline),
      recorder_(options.recorder),
      group_(options.id),
      barrier_token_(at::zeros({1}, at::TensorOptions(at::kByte).device(parts_.device))) {}

NcclEngine::~NcclEngine() {
  if (parts_.comm == nullptr) return;
  // Nobody is left to tell of an error here; a communicator with calls under way must be aborted.
  const Api& api = parts_.library->api();
  calls_.empty() ? api.destroy(parts_.comm) : api.abort(parts_.comm);
}

bool NcclEngine::native(schedule::Routine routine, Shares /*shares*/) const {
  return routine != schedule::Routine::kTreeReduce;
}

Result<uint64_t> NcclEngine::submit(const Request& request, const Choice& choice) {
  if (!status_.ok()) return status_;
  if (choice.steps) HANJI_RETURN_IF_ERROR(check_steps(*choice.steps, rank(), request.op));
  Call call;
  call.request = request;
  call.choice = choice;
  call.start_ns = base::now_ns();
  call.start_running_ns = base::running_ns(call.start_ns);
  const uint64_t ticket = completed_ + calls_.size() + 1;
  const Description mine = describe(request, say_way(choice), ticket);
  call.where = fmt::format("{} as call {} at {}", schedule::name_of(request.routine), ticket,
                           mine.where.data());
  try {
    call.ready = parts_.stream->mark_current();
    call.said = at::empty({kBytes * size()}, at::kByte);
    call.exchange = parts_.exchange(call.said, bytes_of(mine), deadline_of(call));
  } catch (const std::exception& error) {
    return fail(base::internal(fmt::format("{}: {}", call.where, error.what())));
  }
  calls_.push_back(std::move(call));
  const Status begun = advance();
  if (!begun.ok()) return begun;
  return ticket;
}

Status NcclEngine::advance() {
  if (!status_.ok()) return status_;
  try {
    const Status status = step();
    return status.ok() ? status : fail(status);
  } catch (const Error& error) {
    return fail(Status(error.code(), error.what()));
  } catch (const std::exception& error) {
    return fail(base::internal(fmt::format("NCCL: {}", error.what())));
  }
}

Status NcclEngine::check() {
  HANJI_RETURN_IF_ERROR(advance());
  if (calls_.empty()) return {};
  Status status;
  if (parts_.comm != nullptr && calls_.front().ended) {
    int answer = kSuccess;
    const Library& library = *parts_.library;
    status = library.status(library.api().async_error(parts_.comm, &answer),
                            "ncclCommGetAsyncError", parts_.comm);
    if (status.ok()) status = library.status(answer, calls_.front().where, parts_.comm);
  }
  for (const Call& call : calls_) {
    if (status.ok()) status = late(call);
  }
  return status.ok() ? status : fail(status);
}

// A call that waits for a rank to describe it is late where descriptions travel.
Status NcclEngine::late(const Call& call) const {
  if (!call.ended && parts_.comm != nullptr) return {};
  const int64_t since = call.ended ? call.launched_running_ns : call.start_running_ns;
  if (base::running_ns() - since <= deadline_of(call).count()) return {};
  const double seconds = std::chrono::duration<double>(deadline_of(call)).count();
  const std::string name = parts_.names.of(rank());
  if (!call.ended) {
    const std::string other = parts_.names.of(1 - rank());
    return base::timeout(fmt::format(
        "rank {}: {} waits for NCCL to connect it with rank {}, which took more than {} s; that "
        "rank may not have come, or its link: NCCL's own log says more",
        name, call.where, other, seconds));
  }
  return base::timeout(fmt::format(
      "rank {} of {}: {} was launched on {} by all ranks, but the device did not finish it within "
      "{} s; a rank may have died meanwhile, or its link: NCCL's own log says more",
      name, size(), call.where, parts_.device.str(), seconds));
}

bool NcclEngine::done(uint64_t ticket) const { return ticket <= completed_; }

Status NcclEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  while (ticket > completed_) {
    HANJI_RETURN_IF_ERROR(check());
    if (ticket <= completed_) break;
    const Call& call = calls_[ticket - completed_ - 1];
    if (may_leave(call, others)) {
      call.ended->hold_current();
      break;
    }
    for (Engine* other : others) HANJI_RETURN_IF_ERROR(other->advance());
    std::this_thread::yield();
  }
  return status_;
}

bool NcclEngine::needs_host() const {
  return std::ranges::any_of(calls_, [](const Call& call) { return !call.ended; });
}

std::chrono::nanoseconds NcclEngine::deadline_of(const Call& call) const {
  return call.request.deadline.count() > 0 ? call.request.deadline : deadline_;
}

bool NcclEngine::may_leave(const Call& call, std::span<Engine* const> others) const {
  if (!call.ended || call.request.deadline.count() > 0) return false;
  // Calls of one group alone are launched in one order everywhere: the first that is missing on
  // some rank is one that nobody is held up by.
  if (others.empty()) return true;
  return !needs_host() &&
         std::ranges::none_of(others, [](const Engine* other) { return other->needs_host(); });
}

Channel NcclEngine::channel() const {
  return {parts_.library.get(), parts_.comm, parts_.stream->handle(), rank(), size()};
}

Status NcclEngine::fail(Status status) {
  status_ = std::move(status);
  if (parts_.comm != nullptr) parts_.library->api().abort(std::exchange(parts_.comm, nullptr));
  parts_.opening = nullptr;  // a thread that still connects learns that no rank waits
  return status_;
}

Result<bool> NcclEngine::connected() {
  if (parts_.comm != nullptr) return true;
  auto answer = parts_.opening();
  if (!answer) return false;
  HANJI_ASSIGN_OR_RETURN(parts_.comm, *answer);
  return true;
}

Status NcclEngine::step() {
  HANJI_ASSIGN_OR_RETURN(const bool ready, connected());
  if (!ready) return {};
  for (Call& call : calls_) {
    if (call.ended) continue;
    HANJI_ASSIGN_OR_RETURN(const bool told, is_told(call));
    if (!told) break;
    HANJI_RETURN_IF_ERROR(compare(read_all(call.said), parts_.names));
    HANJI_RETURN_IF_ERROR(launch(call));
  }
  retire();
  return {};
}

Result<bool> NcclEngine::is_told(Call& call) {
  try {
    return call.exchange.done();
  } catch (const Error& error) {
    return Status(error.code(), error.what()).at(call.where);
  }
}

Status NcclEngine::launch(Call& call) {
  parts_.stream->wait_for(*call.ready);
  for (const at::Tensor& tensor : {call.request.input, call.request.output}) {
    if (tensor.defined()) parts_.stream->keep(tensor);
  }
  Status status;
  parts_.stream->run([&] {
    status = call.choice.steps ? walk(channel(), call.request, *call.choice.steps)
                               : launch_native(channel(), call.request, barrier_token_.data_ptr());
  });
  if (!status.ok()) return status.at(call.where);
  call.ended = parts_.stream->mark();
  call.launched_running_ns = base::running_ns();
  return {};
}

void NcclEngine::retire() {
  while (!calls_.empty() && calls_.front().ended && calls_.front().ended->done()) {
    const Call& call = calls_.front();
    record_call(recorder_, call.request, {call.start_ns, completed_ + 1, size(), group_});
    const int64_t now =
        base::now_ns();  // skew is a part of the transfer here, and all is the device's
    record_parts(recorder_, call.request, {call.start_ns, call.start_ns, now, now});
    calls_.pop_front();
    ++completed_;
  }
}

}  // namespace hanji::comm::nccl
