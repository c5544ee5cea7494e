#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/fd.h"
#include "hanji/launch/rendezvous.h"

namespace hanji::launch {

/// What a rank says first. 720 bytes; all else is dropped unread.
struct RankHello {
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  char build_id[96] = {};
  char plan_hash[96] = {};
  char refusal[512] = {};  ///< Why the rank cannot take part, which all are told; empty: it can.

  static constexpr uint64_t kMagic = 0x32'6a6e'6168'6968;  // "hihanj2": greeting, version 2.
};
static_assert(sizeof(RankHello) == 720);

/// Where descriptors for the meeting and what follows it are few, the hello says so.
RankHello hello_of(const Identity& identity, const shm::SegmentOptions& options);

/// First byte of the answer: the descriptors come with it, or a Status says why they do not.
inline constexpr std::byte kWelcome{'W'};
inline constexpr std::byte kRefusal{'N'};

/// Local rank 0's side: listens, seats every rank, hands out descriptors.
class Meeting {
 public:
  /// Sweeps the folder and listens. Errors: kInvalidArgument if the same job meets there already.
  static Result<Meeting> open(const std::filesystem::path& path, const RankHello& own);
  Meeting(Meeting&& other) noexcept;
  Meeting& operator=(Meeting&&) = delete;
  /// Removes the socket.
  ~Meeting();

  /// Waits until every rank has come. Tells all that came if that fails.
  Status gather(base::Deadline deadline);
  /// The pidfds by rank, own one included.
  std::vector<int> pidfds() const;
  /// Hands out the descriptors.
  Status welcome(int segment) const;

 private:
  struct ConnectedRank {
    base::Fd connection;
    base::Fd pidfd;
    pid_t pid = -1;
  };

  Meeting(std::filesystem::path path, base::Fd listener, const RankHello& own);
  Status gather_all(base::Deadline deadline);
  void accept();
  Status take_hello(ConnectedRank& connected);
  Status seat(const RankHello& hello, ConnectedRank& connected);
  int num_seated() const;
  Status who_is_missing() const;

  std::filesystem::path path_;
  base::Fd listener_;
  RankHello own_;
  Status refusal_;                      ///< Reason of the first rank that cannot take part.
  std::vector<ConnectedRank> arrived_;  ///< Connected, not yet seated.
  std::vector<ConnectedRank> seats_;    ///< By rank.
};

/// Any other rank's side.
Result<shm::Endpoints> join_meeting(const std::filesystem::path& path, const RankHello& hello,
                                    base::Deadline deadline);

/// Removes sockets in the folder that no process listens at any more.
void sweep_meetings(const std::filesystem::path& directory);

}  // namespace hanji::launch
