#include "hanji/comm/hierarchical/internal/engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/dtype.h"
#include "hanji/comm/internal/state.h"
#include "hanji/shm/segment.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm::hierarchical {
namespace {

using schedule::Routine;

constexpr int kMostSteps = 64;  // of one advance()
constexpr int kPollsBeforeNap = 64;
constexpr auto kNap = std::chrono::microseconds(50);
constexpr std::string_view kStaging = "staging between hosts";
constexpr std::string_view kOnHost = "on the host of ranks";
/// So long another lane, or the launcher, that knows more of a lost connection may tell it first.
constexpr auto kTimeOfOthers = std::chrono::milliseconds(500);

Status status_of(const Error& error) { return {error.code(), error.what()}; }

/// A host that is late itself says so before its twins give it up.
std::chrono::nanoseconds with_grace(std::chrono::nanoseconds deadline) {
  return deadline + std::min<std::chrono::nanoseconds>(deadline / 4, std::chrono::seconds(2));
}

}  // namespace

HierarchicalEngine::HierarchicalEngine(Peers peers, const GroupOptions& options)
    : peers_(std::move(peers)),
      name_("shm + " + peers_.between),
      deadline_(with_grace(options.deadline)),
      recorder_(options.recorder) {}

Result<uint64_t> HierarchicalEngine::submit(const Request& request, const Choice&) {
  if (!status_.ok()) return status_;
  calls_.push_back({request, ++submitted_, base::now_ns()});
  (void)advance();  // a failure belongs to the call, which was started: wait() reports it
  return submitted_;
}

Status HierarchicalEngine::advance() {
  if (!status_.ok()) return status_;
  try {
    peers_.local.state()->advance();
    for (int steps = 0; steps < kMostSteps && step(); ++steps) {
    }
  } catch (const Error& error) {
    lose(error);
  }
  return status_;
}

Status HierarchicalEngine::check() {
  if (!status_.ok() || phase_ == Phase::kIdle) return status_;
  const shm::Segment& segment = *peers_.local.heap().segment();
  if (segment.aborted()) {
    lose(Error(segment.abort_status()));
  } else if (phase_ != Phase::kStages && base::now_ns() - phase_since_ns_ > deadline_.count()) {
    lose(Error(late()));
  }
  return status_;
}

Status HierarchicalEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  for (int polls = 1; ticket > completed_; ++polls) {
    const size_t began = begun_.size();
    const uint64_t before = completed_;
    HANJI_RETURN_IF_ERROR(advance());
    if (completed_ != before || begun_.size() != began) polls = 0;
    if (polls < kPollsBeforeNap) {
      std::this_thread::yield();
      continue;
    }
    HANJI_RETURN_IF_ERROR(check());
    for (Engine* other : others) (void)other->advance();  // told to those who wait for them
    std::this_thread::sleep_for(kNap);
  }
  return {};
}

int64_t HierarchicalEngine::busy_ns() const {
  const int64_t twins = peers_.twins ? peers_.twins->stats().busy_ns : 0;
  return peers_.local.stats().busy_ns + twins;
}

int64_t HierarchicalEngine::network_bytes() const {
  return peers_.twins ? peers_.twins->stats().network_bytes - bytes_of_talk_ : 0;
}

int HierarchicalEngine::num_neighbours() const { return peers_.local.size(); }

bool HierarchicalEngine::step() {
  switch (phase_) {
    case Phase::kIdle:
      if (calls_.empty()) return false;
      open();
      return true;
    case Phase::kHost:
      if (!over(talk_)) return false;
      ask_twins(judge(heard(num_neighbours())));
      return true;
    case Phase::kTwins:
      if (!over(talk_)) return false;
      spread(judge(heard(peers_.hosts.num_hosts())));
      return true;
    case Phase::kVerdict:
      if (!over(talk_)) return false;
      heed(judge(heard(1)));
      return true;
    case Phase::kStages: return run_stages();
  }
  return false;
}

void HierarchicalEngine::open() {
  const Call& call = calls_.front();
  mine_ = make_frame(call.request, call.sequence, rank());
  try {
    prepare(call.request);
  } catch (const Error& error) {  // all ranks hear it, and none waits for this one
    set_verdict(mine_, status_of(error).at(fmt::format("rank {}", rank())));
  }
  phase_since_ns_ = base::now_ns();
  phase_ = Phase::kHost;
  talk_ = talk(peers_.local, Routine::kAllGather, num_neighbours());
}

void HierarchicalEngine::ask_twins(const Status& verdict) {
  if (!verdict.ok()) set_verdict(mine_, verdict);
  if (!peers_.twins) {
    phase_ = Phase::kVerdict;
    talk_ = talk(peers_.local, Routine::kBroadcast, 1);
    return;
  }
  phase_ = Phase::kTwins;
  talk_ = talk(*peers_.twins, Routine::kAllGather, peers_.hosts.num_hosts());
}

void HierarchicalEngine::spread(const Status& verdict) {
  if (!has_rank_without_twins()) return heed(verdict);
  if (!verdict.ok()) set_verdict(mine_, verdict);
  phase_ = Phase::kVerdict;
  talk_ = talk(peers_.local, Routine::kBroadcast, 1);
}

void HierarchicalEngine::heed(const Status& verdict) {
  if (!verdict.ok()) phase_ = Phase::kVerdict;  // it is told: nobody knows more
  base::throw_if_error(verdict);
  begun_.clear();
  phase_ = Phase::kStages;
}

/// Stages begin in the order of the program, which is the same on all ranks of a host: so are the
/// calls of their group.
bool HierarchicalEngine::run_stages() {
  const std::vector<Stage>& stages = program_.stages;
  if (begun_.size() < stages.size()) {
    const Stage& stage = stages[begun_.size()];
    if (stage.after >= 0 && !over(begun_[stage.after])) return false;
    begun_.push_back(begin(stage));
    return true;
  }
  if (!std::ranges::all_of(begun_, [this](const Begun& begun) { return over(begun); })) {
    return false;
  }
  close();
  return true;
}

void HierarchicalEngine::close() {
  record();
  completed_ = calls_.front().sequence;
  calls_.pop_front();
  begun_.clear();
  phase_ = Phase::kIdle;
}

void HierarchicalEngine::prepare(const Request& request) {
  Shape shape{.routine = request.routine,
              .op = request.op,
              .count = request.count,
              .root = request.root,
              .counts = request.counts,
              .element_bytes = static_cast<int64_t>(size_of(request.dtype))};
  if (shape_ != shape) {
    shape_.reset();
    program_ = make_program(shape, peers_.hosts, rank());
    shape_ = std::move(shape);
  }
  make_staging(Buffer::kWide, program_.wide);
  make_staging(Buffer::kLane, program_.lane);
  make_staging(Buffer::kPiece, program_.piece);
}

void HierarchicalEngine::make_staging(Buffer buffer, int64_t elements) {
  at::Tensor& staging = staging_[static_cast<size_t>(buffer)];
  const int64_t bytes = std::max<int64_t>(elements * shape_->element_bytes, 1);
  if (staging.defined() && staging.numel() >= bytes) return;
  staging.reset();
  Heap heap = peers_.local.heap();
  staging = heap.empty({bytes}, at::kByte, kStaging);
}

HierarchicalEngine::Begun HierarchicalEngine::talk(const Group& group, Routine routine,
                                                   int num_frames) {
  at::Tensor said = at::empty({static_cast<int64_t>(sizeof(Frame))}, at::kByte);
  std::memcpy(said.data_ptr(), &mine_, sizeof(mine_));
  const bool gathers = routine == Routine::kAllGather;
  if (&group != &peers_.local) bytes_of_talk_ += (num_frames - 1) * said.numel();
  heard_ = gathers ? at::empty({num_frames * said.numel()}, at::kByte) : said;
  Request request{.routine = routine,
                  .dtype = DType::kUInt8,
                  .count = said.numel(),
                  .input = said,
                  .output = heard_,
                  .label = "comparison of calls",
                  .call_site = calls_.front().request.call_site,
                  .agreed = true};
  return {&group, group.state()->submit(std::move(request)).sequence};
}

std::span<const Frame> HierarchicalEngine::heard(int num_frames) const {
  return {static_cast<const Frame*>(heard_.const_data_ptr()), static_cast<size_t>(num_frames)};
}

bool HierarchicalEngine::over(const Begun& begun) const {
  return begun.group == nullptr || begun.group->state()->done(begun.sequence);
}

HierarchicalEngine::Begun HierarchicalEngine::begin(const Stage& stage) const {
  if (stage.kind == Stage::Kind::kMove) move(stage.moves);
  if (stage.kind == Stage::Kind::kDivide) divide(stage.to);
  if (stage.kind == Stage::Kind::kMove || stage.kind == Stage::Kind::kDivide) return {};
  const Request& whole = calls_.front().request;
  Request request{.routine = stage.routine,
                  .op = stage.op,
                  .dtype = whole.dtype,
                  .count = stage.count,
                  .root = stage.root,
                  .tag = whole.tag,
                  .input = tensor_of(stage.from),
                  .output = tensor_of(stage.to),
                  .label = whole.label,
                  .call_site = whole.call_site,
                  .counts = stage.counts,
                  .agreed = true};
  const Group& group = stage.kind == Stage::Kind::kLocal ? peers_.local : *peers_.twins;
  return {&group, group.state()->submit(std::move(request)).sequence};
}

const at::Tensor& HierarchicalEngine::base_of(Buffer buffer) const {
  switch (buffer) {
    case Buffer::kInput: return calls_.front().request.input;
    case Buffer::kOutput: return calls_.front().request.output;
    default: return staging_[static_cast<size_t>(buffer)];
  }
}

/// The tensor that it is part of lives as long: calls that are lost may still use it.
at::Tensor HierarchicalEngine::tensor_of(const Piece& piece) const {
  if (piece.buffer == Buffer::kNone) return {};
  const at::Tensor& base = base_of(piece.buffer);
  auto* begin = static_cast<std::byte*>(base.data_ptr()) + piece.begin * shape_->element_bytes;
  return at::from_blob(
      begin, {piece.count}, [base](void*) {}, to_scalar_type(calls_.front().request.dtype));
}

void HierarchicalEngine::move(const std::vector<Move>& moves) const {
  const auto address = [this](const Piece& piece) {
    return static_cast<std::byte*>(base_of(piece.buffer).data_ptr()) +
           piece.begin * shape_->element_bytes;
  };
  for (const Move& one : moves) {
    std::memcpy(address(one.to), address(one.from), one.from.count * shape_->element_bytes);
  }
}

void HierarchicalEngine::divide(const Piece& piece) const {
  at::Tensor sum = tensor_of(piece);
  if (!sum.is_floating_point()) {
    sum.div_(size(), "trunc");
  } else if (sum.element_size() < 4) {
    sum.copy_(sum.to(at::kFloat).div_(size()));
  } else {
    sum.div_(size());
  }
}

/// A failure on this host is known to its ranks, and told to the twins if they listen. One of the
/// twins is told to the ranks of this host.
void HierarchicalEngine::lose(const Error& error) {
  status_ = status_of(error);
  if (status_.code() == Code::kMismatch) return;  // known everywhere
  const shm::Segment& segment = *peers_.local.heap().segment();
  if (phase_ == Phase::kHost || segment.aborted()) {
    status_ = located(segment.aborted() ? segment.abort_status() : status_);
    return tell_twins();
  }
  const auto patience = base::Deadline::after(kTimeOfOthers);
  while (phase_ != Phase::kVerdict && !segment.aborted() && !patience.passed()) {
    std::this_thread::sleep_for(kNap);
  }
  if (segment.aborted()) {
    status_ = located(segment.abort_status());
  } else {
    peers_.local.heap().segment()->abort(peers_.local.heap().rank(), status_.code(),
                                         status_.message());
  }
}

/// The ranks of a host are numbered from 0 in what its memory says.
Status HierarchicalEngine::located(const Status& status) const {
  const std::vector<int>& ranks = peers_.hosts.ranks(peers_.hosts.host(rank()));
  if (ranks[0] == 0 || status.message().find(kOnHost) != std::string::npos) return status;
  return status.at(fmt::format("{} {}, numbered from 0 there", kOnHost, fmt::join(ranks, ", ")));
}

void HierarchicalEngine::tell_twins() {
  if (phase_ != Phase::kHost || !peers_.twins) return;
  set_verdict(mine_, status_);
  try {
    (void)talk(*peers_.twins, Routine::kAllGather, peers_.hosts.num_hosts());
  } catch (const Error&) {  // they are lost as well: there is nobody to tell
  }
}

Status HierarchicalEngine::late() const {
  const Call& call = calls_.front();
  std::vector<int> absent =
      peers_.hosts.twins(std::min(peers_.local.rank(), peers_.hosts.num_lanes() - 1));
  std::erase(absent, rank());
  return base::timeout(fmt::format(
      "{} '{}' at {}:{}: call {} was begun by all ranks of the host of rank {}, but not on every "
      "other host within {:.3g} s; this rank waits for one of ranks {}",
      schedule::name_of(call.request.routine), call.request.label,
      call.request.call_site.file_name(), call.request.call_site.line(), call.sequence, rank(),
      std::chrono::duration<double>(deadline_).count(), fmt::join(absent, ", ")));
}

void HierarchicalEngine::record() const {
  if (recorder_ == nullptr) return;
  const Call& call = calls_.front();
  trace::Event event;
  event.start_ns = call.start_ns;
  event.end_ns = base::now_ns();
  event.name = recorder_->intern(schedule::name_of(call.request.routine));
  event.lane = trace::Lane::kCommunication;
  event.category = trace::Category::kCommunication;
  event.step = recorder_->step();
  event.bytes = call.request.count * shape_->element_bytes;
  event.sequence = static_cast<int64_t>(call.sequence);
  event.group_size = size();
  event.dtype = static_cast<uint8_t>(call.request.dtype);
  recorder_->add(event);
}

}  // namespace hanji::comm::hierarchical
