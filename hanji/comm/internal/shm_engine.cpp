#include "hanji/comm/internal/shm_engine.h"

#include "hanji/shm/call_site.h"

namespace hanji::comm {

ShmEngine::ShmEngine(std::unique_ptr<shm::Engine> engine, Heap heap)
    : heap_(std::move(heap)), engine_(std::move(engine)) {}

Result<uint64_t> ShmEngine::submit(const Request& request, const Choice& choice) {
  shm::Call call;
  call.routine = request.routine;
  call.op = request.op;
  call.dtype = request.dtype;
  call.count = request.count;
  call.root = request.root;
  call.tag = request.tag;
  if (request.input.defined()) call.input = request.input.const_data_ptr();
  if (request.output.defined()) call.output = request.output.data_ptr();
  call.input_stride = request.input_stride;
  call.num_parts = request.num_parts;
  call.steps = choice.steps;
  call.steps_if_private = choice.steps_if_private;
  call.call_site =
      heap_.segment()->call_sites().intern(heap_.rank(), request.call_site, request.label);
  call.label = request.label;
  return engine_->submit(call);
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
