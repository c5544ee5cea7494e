#include "hanji/comm/barrier.h"

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

void barrier(const Group& group, const CallOptions& options, std::source_location call_site) {
  submit({.routine = schedule::Routine::kBarrier,
          .tag = options.tag,
          .label = std::string(options.label),
          .call_site = call_site},
         group)
      .wait();
}

}  // namespace hanji::comm
