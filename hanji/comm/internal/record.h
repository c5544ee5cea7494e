#pragma once

#include <cstdint>

#include "hanji/comm/internal/call_clock.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm {

/// When and as which call of which group a request was carried out.
struct Carried {
  int64_t start_ns = 0;
  uint64_t sequence = 0;
  int group_size = 0;
  int group = 0;  ///< GroupOptions::id.
};

/// Adds to the trace of a rank a call that ends now; nothing where `recorder` is null.
void record_call(trace::Recorder* recorder, const Request& request, const Carried& carried);
/// Adds what the call was to the rank: whom it waited for is not known.
void record_parts(trace::Recorder* recorder, const Request& request, const CallParts& parts);

}  // namespace hanji::comm
