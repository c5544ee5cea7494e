#include "hanji/comm/internal/shm_engine.h"

#include <thread>

#include "hanji/shm/call_site.h"

namespace hanji::comm {

std::vector<int> ranks_in(uint64_t bits) {
  std::vector<int> ranks;
  for (int rank = 0; rank < 64; ++rank) {
    if ((bits >> rank & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

// About a microsecond where every rank has its processor; elsewhere a look at who was there first.
int ShmEngine::polls_at_once() const {
  constexpr int kPollsAlone = 64;
  constexpr int kPollsOversubscribed = 2;
  return engine_->oversubscribed() ? kPollsOversubscribed : kPollsAlone;
}

ShmEngine::ShmEngine(std::unique_ptr<shm::Engine> engine, Heap heap)
    : heap_(std::move(heap)), engine_(std::move(engine)) {}

Result<uint64_t> ShmEngine::submit(const Request& request, const Choice& choice) {
  call_.routine = request.routine;
  call_.op = request.op;
  call_.dtype = request.dtype;
  call_.count = request.count;
  call_.root = request.root;
  call_.factor = request.factor;
  call_.tag = request.tag;
  call_.deadline = request.deadline;
  call_.input = request.input.defined() ? request.input.const_data_ptr() : nullptr;
  call_.output = request.output.defined() ? request.output.data_ptr() : nullptr;
  call_.input_stride = request.input_stride;
  call_.num_parts = request.num_parts;
  if (call_.steps != choice.steps) call_.steps = choice.steps;
  if (call_.steps_if_private != choice.steps_if_private) {
    call_.steps_if_private = choice.steps_if_private;
  }
  call_.call_site = site_of(request);
  return engine_->submit(call_);
}

// File names are literals: one address is one name.
uint32_t ShmEngine::site_of(const Request& request) {
  const bool again = call_.call_site != 0 && request.call_site.line() == site_.line() &&
                     request.call_site.file_name() == site_.file_name() &&
                     request.label == call_.label;
  if (again) return call_.call_site;
  site_ = request.call_site;
  call_.label = request.label;
  return heap_.segment()->call_sites().intern(heap_.rank(), site_, call_.label);
}

Result<std::vector<int>> ShmEngine::arrived(uint64_t ticket) const {
  return ranks_in(engine_->arrived(ticket));
}

Result<std::vector<int>> ShmEngine::delivered(uint64_t ticket) const {
  return ranks_in(engine_->delivered(ticket));
}

Status ShmEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  if (others.empty()) return engine_->wait(ticket);
  std::vector<shm::Engine*> driven;
  for (Engine* other : others) {
    auto* shared = dynamic_cast<ShmEngine*>(other);
    if (shared == nullptr) return wait_beside(ticket, others);
    driven.push_back(shared->engine_.get());
  }
  return engine_->wait(ticket, driven);
}

// The rank's own thread moves the bytes: nothing of it hides behind what the rank computes.
std::optional<CallTimes> ShmEngine::times() const {
  if (!engine_->traced()) return std::nullopt;
  const shm::Stats& stats = engine_->stats();
  const int64_t transfer = stats.busy_ns + stats.peers_ns;
  return CallTimes{.transfer_ns = transfer, .exposed_ns = transfer, .skew_ns = stats.skew_ns};
}

Status ShmEngine::wait_beside(uint64_t ticket, std::span<Engine* const> others) {
  engine_->set_waiting(true);
  const Status status = poll_beside(ticket, others);
  engine_->set_waiting(false);
  return status;
}

Status ShmEngine::poll_beside(uint64_t ticket, std::span<Engine* const> others) {
  constexpr int kPollsBeforeOthers = 64;
  for (int polls = 1; !engine_->done(ticket); ++polls) {
    HANJI_RETURN_IF_ERROR(engine_->advance());
    if (polls % kPollsBeforeOthers != 0) continue;
    HANJI_RETURN_IF_ERROR(engine_->check());
    for (Engine* other : others) (void)other->advance();  // told to those who wait for them
    std::this_thread::yield();
  }
  return {};
}

}  // namespace hanji::comm
