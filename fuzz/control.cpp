// What arrives on a control socket, and what HANJI_ENDPOINTS announces.
#include <algorithm>

#include "fuzz/input.h"
#include "hanji/base/socket.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/control.h"

namespace {

using namespace hanji;

/// The bytes as one message on a fresh socket, read by `take`.
template <class Take>
void deliver(std::span<const std::byte> bytes, Take take) {
  auto ends = base::socket_pair();
  fuzz::require(ends.ok(), "a pair of sockets");
  if (!base::send_message(ends->first.get(), bytes).ok()) return;
  ends->first.reset();
  take(ends->second.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4 * launch::kMaxStatusBytes) return 0;
  const auto bytes = fuzz::bytes_of(data, size);
  if (const auto status = launch::parse_status(bytes[0], bytes)) {
    const auto again = launch::status_message(bytes[0], *status);
    fuzz::require(std::ranges::equal(again, bytes.first(std::min(bytes.size(), again.size()))),
                  "a status reads back the same");
  }
  if (const auto announced = launch::parse_announcement(fuzz::text_of(data, size));
      announced.ok()) {
    fuzz::require(launch::parse_announcement(launch::to_text(*announced)).ok(),
                  "an announcement reads back");
  }
  deliver(bytes, [](int socket) {
    bool closed = false;
    (void)launch::take_words(socket, closed);
  });
  deliver(bytes, [](int socket) {
    (void)launch::receive_peers(socket, 0, 2, base::Deadline::after(std::chrono::seconds(1))).ok();
  });
  return 0;
}
