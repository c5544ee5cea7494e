#include "hanji/launch/internal/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/socket.h"

namespace hanji::launch {
namespace {

constexpr std::byte kPeers{'P'};
constexpr std::byte kReport{'R'};

using namespace std::chrono_literals;

}  // namespace

Status send_peers(int control, std::span<const int> pidfds) {
  for (size_t sent = 0; sent < pidfds.size();) {
    const size_t count = std::min(base::kMaxDescriptors, pidfds.size() - sent);
    HANJI_RETURN_IF_ERROR(
        base::send_message(control, std::span(&kPeers, 1), pidfds.subspan(sent, count)));
    sent += count;
  }
  return {};
}

Result<std::vector<base::Fd>> receive_peers(int control, int rank, int size,
                                            base::Deadline deadline) {
  std::vector<base::Fd> pidfds;
  while (static_cast<int>(pidfds.size()) < size) {
    auto message = base::receive_message(control, 1, deadline);
    if (!message.ok()) return message.status().at("wait for all ranks to start");
    if (message->bytes != std::vector{kPeers} || message->descriptors.empty()) {
      return base::corrupt("wait for all ranks to start: the launcher sent something else");
    }
    std::move(message->descriptors.begin(), message->descriptors.end(), std::back_inserter(pidfds));
  }
  if (static_cast<int>(pidfds.size()) != size) {
    return base::corrupt(
        fmt::format("the launcher sent {} process descriptors for {} ranks", pidfds.size(), size));
  }
  pidfds[rank].reset();
  return pidfds;
}

std::vector<std::byte> status_message(std::byte tag, const Status& status) {
  const auto words = std::as_bytes(std::span(status.message()));
  std::vector<std::byte> bytes(2 + std::min(words.size(), kMaxStatusBytes - 2));
  bytes[0] = tag;
  bytes[1] = static_cast<std::byte>(status.code());
  std::copy_n(words.begin(), bytes.size() - 2, bytes.begin() + 2);
  return bytes;
}

std::optional<Status> parse_status(std::byte tag, std::span<const std::byte> bytes) {
  const auto last = static_cast<std::byte>(Code::kInternal);
  if (bytes.size() < 2 || bytes[0] != tag || bytes[1] > last) return {};
  std::string words(bytes.size() - 2, '\0');
  std::transform(bytes.begin() + 2, bytes.end(), words.begin(),
                 [](std::byte byte) { return static_cast<char>(byte); });
  return Status(static_cast<Code>(bytes[1]), std::move(words));
}

Status send_report(int control, const Status& status) {
  return base::send_message(control, status_message(kReport, status), {},
                            base::Deadline::after(1s));
}

std::optional<Told> take_words(int control, bool& closed) {
  const auto message = base::receive_message(control, kMaxStatusBytes, base::Deadline::after(0ns));
  if (!message.ok()) {
    closed = message.status().code() != Code::kTimeout;
    return {};
  }
  Told told;
  told.report = parse_status(kReport, message->bytes);
  if (!message->bytes.empty() && message->bytes[0] == static_cast<std::byte>(kStackTag)) {
    told.stack.assign(reinterpret_cast<const char*>(message->bytes.data()) + 1,
                      message->bytes.size() - 1);
  }
  return told;
}

}  // namespace hanji::launch
