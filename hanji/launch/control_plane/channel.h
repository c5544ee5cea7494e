#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/secret.h"

namespace hanji::launch {

inline constexpr size_t kMaxFrameBytes = size_t{2} << 20;  ///< Of a frame's content.

/// The keys of the two directions.
struct ChannelKeys {
  base::Digest send{};
  base::Digest receive{};
};

/// Frames on an authenticated connection: length (u32, little-endian), content, and the first 16
/// bytes of HMAC(key, number of the frame, length, content). So nobody between the two can change,
/// repeat, drop or reorder one unseen. The content is not hidden from them.
class Channel {
 public:
  Channel(base::Fd socket, const ChannelKeys& keys) : socket_(std::move(socket)), keys_(keys) {}

  int fd() const { return socket_.get(); }
  /// Puts a frame behind what waits to be sent.
  void queue(std::string_view content);
  bool wants_to_send() const { return sent_ < output_.size(); }
  size_t queued_bytes() const { return output_.size() - sent_; }
  /// Sends what the socket takes now. Errors: kPeerLost.
  Status flush();
  /// Takes what has arrived. Errors: kPeerLost once the other end is closed and all is read.
  Status receive();
  /// The next whole frame; nothing if there is none yet.
  /// Errors  kCorrupt for a length out of bounds or a wrong tag: close the connection then.
  Result<std::optional<std::string>> next();

 private:
  base::Fd socket_;
  ChannelKeys keys_;
  uint64_t num_sent_ = 0;
  uint64_t num_received_ = 0;
  std::string output_;
  size_t sent_ = 0;
  std::string input_;
};

/// One frame as bytes, and the first of `input`, which is cut off it. For Channel and its tests.
std::string seal_frame(const base::Digest& key, uint64_t number, std::string_view content);
Result<std::optional<std::string>> open_frame(const base::Digest& key, uint64_t number,
                                              std::string& input);

}  // namespace hanji::launch
