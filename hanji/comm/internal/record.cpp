#include "hanji/comm/internal/record.h"

#include "hanji/base/clock.h"

namespace hanji::comm {

void record_call(trace::Recorder* recorder, const Request& request, const Carried& carried) {
  if (recorder == nullptr) return;
  trace::Event event;
  event.start_ns = carried.start_ns;
  event.end_ns = base::now_ns();
  event.name = recorder->intern(schedule::name_of(request.routine));
  event.lane = trace::Lane::kCommunication;
  event.category = trace::Category::kCommunication;
  event.step = recorder->step();
  event.bytes = request.count * static_cast<int64_t>(base::size_of(request.dtype));
  event.sequence = static_cast<int64_t>(carried.sequence);
  event.group_size = carried.group_size;
  event.group = carried.group;
  event.routine = static_cast<uint8_t>(request.routine);
  if (schedule::reduces(request.routine)) event.op = static_cast<uint8_t>(request.op);
  event.dtype = static_cast<uint8_t>(request.dtype);
  event.counts = schedule::hash_of_counts(request.count, request.counts);
  recorder->add(event);
}

void record_parts(trace::Recorder* recorder, const Request& request, const CallParts& parts) {
  if (recorder == nullptr) return;
  const auto add = [&](trace::Category category, trace::Lane lane, int64_t start_ns,
                       int64_t end_ns) {
    constexpr int64_t kWorthAnEvent = 500;  // ns
    if (end_ns - start_ns < kWorthAnEvent) return;
    const bool waits = category == trace::Category::kSkew;
    recorder->add({.start_ns = start_ns,
                   .end_ns = end_ns,
                   .name = recorder->intern(waits ? "waiting for other ranks"
                                                  : schedule::name_of(request.routine)),
                   .lane = lane,
                   .category = category});
  };
  add(trace::Category::kSkew, trace::Lane::kMain, parts.skew_ns, parts.arrived_ns);
  add(trace::Category::kTransfer, trace::Lane::kCommunication, parts.arrived_ns, parts.exposed_ns);
  add(trace::Category::kTransfer, trace::Lane::kMain, parts.exposed_ns, parts.end_ns);
}

}  // namespace hanji::comm
