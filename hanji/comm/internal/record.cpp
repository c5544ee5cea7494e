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
  event.dtype = static_cast<uint8_t>(request.dtype);
  recorder->add(event);
}

}  // namespace hanji::comm
