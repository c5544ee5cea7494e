#include "hanji/launch/control_plane/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace hanji::launch {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t);
constexpr size_t kTagBytes = 16;
constexpr size_t kReadBytes = 64 << 10;

base::Digest tag_of(const base::Digest& key, uint64_t number, std::string_view frame) {
  return base::hmac_sha256(key,
                           {std::as_bytes(std::span(&number, 1)), std::as_bytes(std::span(frame))});
}

Status lost(const char* what, int error) {
  return base::peer_lost(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace

std::string seal_frame(const base::Digest& key, uint64_t number, std::string_view content) {
  const auto length = static_cast<uint32_t>(content.size());
  std::string frame(kLengthBytes, '\0');
  std::memcpy(frame.data(), &length, sizeof(length));
  frame += content;
  const base::Digest tag = tag_of(key, number, frame);
  frame.append(reinterpret_cast<const char*>(tag.data()), kTagBytes);
  return frame;
}

Result<std::optional<std::string>> open_frame(const base::Digest& key, uint64_t number,
                                              std::string& input) {
  if (input.size() < kLengthBytes) return std::optional<std::string>();
  uint32_t length = 0;
  std::memcpy(&length, input.data(), sizeof(length));
  if (length > kMaxFrameBytes) {
    return base::corrupt(
        fmt::format("a frame of {} bytes; at most {} are sent", length, kMaxFrameBytes));
  }
  const size_t signed_bytes = kLengthBytes + length;
  if (input.size() < signed_bytes + kTagBytes) return std::optional<std::string>();
  const std::string_view all(input);
  const base::Digest tag = tag_of(key, number, all.substr(0, signed_bytes));
  if (!base::equal_secrets(std::span(tag).first(kTagBytes),
                           std::as_bytes(std::span(all.substr(signed_bytes, kTagBytes))))) {
    return base::corrupt("a frame that was changed, repeated or left out on the way");
  }
  std::optional<std::string> content(input.substr(kLengthBytes, length));
  input.erase(0, signed_bytes + kTagBytes);
  return content;
}

void Channel::queue(std::string_view content) {
  output_.erase(0, sent_);
  sent_ = 0;
  output_ += seal_frame(keys_.send, num_sent_++, content);
}

Status Channel::flush() {
  while (wants_to_send()) {
    const ssize_t sent =
        ::send(socket_.get(), output_.data() + sent_, queued_bytes(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return {};
    if (sent < 0) return lost("send", errno);
    sent_ += static_cast<size_t>(sent);
  }
  output_.clear();
  sent_ = 0;
  return {};
}

Status Channel::receive() {
  std::array<char, kReadBytes> bytes;
  while (input_.size() <= 2 * kMaxFrameBytes) {
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return {};
    if (got < 0) return lost("receive", errno);
    if (got == 0) return base::peer_lost("the other end closed the connection");
    input_.append(bytes.data(), static_cast<size_t>(got));
  }
  return {};
}

Result<std::optional<std::string>> Channel::next() {
  HANJI_ASSIGN_OR_RETURN(auto content, open_frame(keys_.receive, num_received_, input_));
  if (content) ++num_received_;
  return content;
}

}  // namespace hanji::launch
