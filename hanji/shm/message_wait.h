#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/schedule/operation.h"

namespace hanji::shm {

class Segment;
namespace internal {
struct MessageWaitWords;
}

/// A group whose ranks exchange messages, as it lies in a segment: its name and the numbers of its
/// ranks among all of the job, cut to what fits.
class MessageGroup {
 public:
  static constexpr size_t kNameBytes = 64;
  static constexpr size_t kRanksBytes = 128;

  MessageGroup() = default;
  MessageGroup(std::string_view name, std::span<const int> ranks);

  std::string name() const;
  /// In the order of the group; those that did not fit are missing at the end.
  std::vector<int> ranks() const;

  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }
  bool operator==(const MessageGroup&) const = default;

 private:
  std::array<uint64_t, (kNameBytes + kRanksBytes) / sizeof(uint64_t)> words_{};
};

/// A call by messages, without flags that peers of the host could see.
struct MessageCall {
  schedule::Routine routine = schedule::Routine::kBarrier;
  DType dtype = DType::kUInt8;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  bool receives = false;  ///< kSend: this rank is the receiver.
  uint32_t call_site = 0;
  int root = 0;
  uint64_t tag = 0;
  int64_t count = 0;
  uint64_t operation = 0;  ///< Number among the group's calls, from 1.
};

/// The last call by messages that a rank waited for.
struct MessageWait {
  MessageGroup group;
  MessageCall call;
  std::optional<int64_t> since_ns;  ///< A time of base::now_ns(); none: the rank waits no more.
};

/// Writes for other processes what `rank` of the host waits for by messages, and until when. A wait
/// that begins within another replaces it.
/// Thread  that of the rank which waits.
void begin_message_wait(const Segment& segment, int rank, const MessageGroup& group,
                        const MessageCall& call);
void end_message_wait(const Segment& segment, int rank);

/// None if the rank never waited, or if it writes all the time.
std::optional<MessageWait> read_message_wait(const internal::MessageWaitWords& words);

}  // namespace hanji::shm
