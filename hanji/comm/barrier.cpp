#include "hanji/comm/barrier.h"

#include "hanji/comm/internal/submit.h"

namespace hanji::comm {

void barrier(const Group& group, const CallOptions& options, std::source_location call_site) {
  submit(open_request(schedule::Routine::kBarrier, options, call_site), group).wait();
}

}  // namespace hanji::comm
