#include "hanji/comm/c10d/backend.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "hanji/comm/c10d/internal/group_backend.h"
#include "hanji/comm/internal/submit.h"

namespace hanji::comm::c10d {
namespace {

using std::chrono::milliseconds;

milliseconds in_milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

}  // namespace

const at::Tensor& only(const Tensors& tensors, const char* title) {
  if (tensors.size() == 1) return tensors[0];
  throw Error(base::invalid_argument(
      fmt::format("{}: a call of c10d brings one tensor per rank here, and brought {}; use the "
                  "coalesced form",
                  title, tensors.size())));
}

std::function<void()> in_turn(std::vector<std::function<void()>> thens) {
  if (thens.empty()) return {};
  return [thens = std::move(thens)] {
    for (const auto& then : thens) then();
  };
}

GroupBackend::GroupBackend(const Group& group, BackendOptions options)
    : ::c10d::Backend(group.rank(), group.size()), group_(group), hooks_(std::move(options)) {
  const auto deadline = in_milliseconds(group.options().deadline);
  if (hooks_.timeout <= milliseconds(0)) hooks_.timeout = deadline;
  options_ = c10::make_intrusive<Options>("hanji", hooks_.timeout);
  init();
}

GroupBackend::~GroupBackend() { shutdown(); }

const Group& GroupBackend::group() const {
  if (group_) return *group_;
  throw Error(base::invalid_argument(
      "this process group was shut down; make a new one with init_process_group or new_group"));
}

::c10d::ErrorType GroupBackend::getError() {
  try {
    if (group_) group_->advance();
    return ::c10d::ErrorType::SUCCESS;
  } catch (const Error& error) {
    return error.code() == Code::kTimeout ? ::c10d::ErrorType::TIMEOUT
                                          : ::c10d::ErrorType::COMM_ERROR;
  }
}

void GroupBackend::abort() {
  if (group_ && hooks_.abort) {
    hooks_.abort(
        base::peer_lost(fmt::format("rank {} of group {} called abort", rank_, group_->name())));
  }
}

void GroupBackend::shutdown() {
  any_source_.reset();
  coalesced_.reset();
  group_.reset();
  hooks_ = {};
}

// What is full serves all the same: calls move private memory too, by way of a copy.
at::Tensor GroupBackend::allocateTensor(long size, at::TensorOptions options) {
  try {
    return group().heap().empty({size}, c10::typeMetaToScalarType(options.dtype()), "c10d");
  } catch (const Error& error) {
    if (error.code() != Code::kOutOfMemory) throw;
    return at::empty({size}, options);
  }
}

CallName GroupBackend::named(::c10d::OpType type, const char* title, milliseconds timeout,
                             const Tensors& inputs) const {
  const milliseconds limit = timeout == ::c10d::kUnsetTimeout ? options_->timeout : timeout;
  const bool sooner =
      limit > milliseconds(0) && limit < in_milliseconds(group().options().deadline);
  return {type, title, sooner ? limit : milliseconds(0), inputs};
}

c10::intrusive_ptr<GroupWork> GroupBackend::begin(const CallName& name, Tensors outputs) {
  auto work = c10::make_intrusive<GroupWork>(rank_, name, ++calls_, std::move(outputs));
  if (name.limit.count() > 0 && hooks_.abort) work->on_timeout(hooks_.abort);
  return work;
}

WorkPtr GroupBackend::note(WorkPtr work) {
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

/// `work` as c10d sees it; `then` runs first, when the bytes are there.
WorkPtr GroupBackend::track(const CallName& name, Tensors outputs, hanji::comm::Work work,
                            const Then& then, int source) {
  auto tracked = begin(name, std::move(outputs));
  tracked->driven_by(work);
  work.then([tracked, then, source](const Status& status) {
    tracked->complete_after(then, status, source);
  });
  return note(tracked);
}

WorkPtr GroupBackend::barrier(const ::c10d::BarrierOptions& options) {
  const auto name = named(::c10d::OpType::BARRIER, "hanji:barrier", options.timeout, {});
  Request request{.routine = schedule::Routine::kBarrier,
                  .label = "c10d",
                  .call_site = std::source_location::current()};
  return track(name, {}, submit(std::move(request), group()));
}

void GroupBackend::startCoalescing() { coalesced_.emplace(); }

WorkPtr GroupBackend::endCoalescing() {
  auto parts = std::exchange(coalesced_, std::nullopt);
  if (!parts) throw Error(base::invalid_argument("endCoalescing without startCoalescing"));
  return join_works(rank_, *parts);
}

c10::intrusive_ptr<::c10d::Backend> make_backend(const Group& group, BackendOptions options) {
  if (group.options().progress != Progress::kThread) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: c10d's futures complete unwaited, so the group must move its bytes "
                    "itself; make it with Progress::kThread",
                    group.name())));
  }
  return c10::make_intrusive<GroupBackend>(group, std::move(options));
}

}  // namespace hanji::comm::c10d
