#include "hanji/schedule/send.h"

#include <algorithm>

#include "hanji/schedule/internal/builder.h"

namespace hanji::schedule {
namespace {

using namespace internal;
using layout::Range;

constexpr int kSender = 0;
constexpr int kReceiver = 1;

StepList open_send(std::string algorithm, int64_t count) {
  return open_list(Routine::kSend, std::move(algorithm), 2, count);
}

// One chunk through the sender's slot at `slot`, with the sync between in and out.
void add_chunk(StepList& list, Range chunk, int64_t slot) {
  const Operand staged{kSender, Place::kSlot, 0, slot};
  add_copy(list, kSender, {kSender, Place::kInput, 0, chunk.begin}, {staged}, chunk.size());
  add_sync(list);
  add_copy(list, kReceiver, staged, {{kReceiver, Place::kOutput, 0, chunk.begin}}, chunk.size());
}

}  // namespace

StepList send_flat(int64_t count) {
  StepList list = open_send("flat", count);
  list.slot_elements = count;
  add_chunk(list, {0, count}, 0);
  return list;
}

StepList send_direct(int64_t count) {
  StepList list = open_send("direct", count);
  add_sync(list);
  add_copy(list, kReceiver, {kSender, Place::kInput, 0, 0}, {{kReceiver, Place::kOutput, 0, 0}},
           count);
  add_sync(list);
  return list;
}

StepList send_staged(int64_t count, int64_t chunk) {
  require(chunk >= 1, "send_staged needs a chunk of at least 1 element");
  StepList list = open_send("staged", count);
  const int64_t half = std::min(chunk, count);
  add_by_halves(list, half, chunks_of(count, chunk),
                [&](Range piece, int64_t slot) { add_chunk(list, piece, slot); });
  return list;
}

}  // namespace hanji::schedule
