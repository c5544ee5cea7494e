#include "hanji/comm/internal/shm_engine.h"

#include "hanji/shm/call_site.h"

namespace hanji::comm {

ShmEngine::ShmEngine(std::unique_ptr<shm::Engine> engine, Heap heap)
    : heap_(std::move(heap)), engine_(std::move(engine)) {}

Result<uint64_t> ShmEngine::submit(const Request& request, const Choice& choice) {
  call_.routine = request.routine;
  call_.op = request.op;
  call_.dtype = request.dtype;
  call_.count = request.count;
  call_.root = request.root;
  call_.tag = request.tag;
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

Status ShmEngine::wait(uint64_t ticket, std::span<Engine* const> others) {
  if (others.empty()) return engine_->wait(ticket);
  std::vector<shm::Engine*> driven;
  for (Engine* other : others) {
    // Engines of other kinds move their bytes by threads of their own.
    if (auto* shared = dynamic_cast<ShmEngine*>(other)) driven.push_back(shared->engine_.get());
  }
  return engine_->wait(ticket, driven);
}

}  // namespace hanji::comm
