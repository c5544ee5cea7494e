// Compiled twice: with the engine, and after unchecked.h with its copy.
#include "bench/check_cost_side.h"

#include "hanji/shm/engine.h"

namespace hanji::bench {

#ifdef HANJI_BENCH_UNCHECKED
#define HANJI_MAKE make_unchecked
#else
#define HANJI_MAKE make_checked
#endif

Side HANJI_MAKE(const std::shared_ptr<shm::Segment>& segment, int group, int rank) {
  std::shared_ptr<shm::Engine> engine =
      shm::Engine::create(segment, group, {0, 1}, rank).or_throw();
  return [engine](const shm::Call& call) -> Status {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine->submit(call));
    return engine->wait(ticket);
  };
}

}  // namespace hanji::bench
