#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/comm/internal/description.h"
#include "hanji/comm/internal/message_walk.h"
#include "hanji/comm/internal/wire.h"

namespace hanji::comm {

/// One call on its way over a wire: the ranks tell each other what they called; if it is the same,
/// it is carried out. A barrier ends with the first half; Request::agreed leaves it out elsewhere.
class MessageCall {
 public:
  /// What a call is, and where it stands in its group's order.
  struct What {
    Request request;
    Choice choice;
    uint64_t sequence = 0;
  };
  /// `names` of the wire's ranks. Both must outlive the call.
  MessageCall(Wire& wire, const RankNames& names, What what);

  /// Goes on as far as it can without waiting; true at the end.
  /// Errors  throws Error(kMismatch) on all ranks alike, and what the wire throws.
  bool advance();

  const Request& request() const { return what_.request; }
  uint64_t sequence() const { return what_.sequence; }
  int64_t start_ns() const { return start_ns_; }
  /// When all ranks had called, as far as they tell each other; 0: not yet.
  int64_t agreed_ns() const { return agreed_ns_; }
  /// Stats::network_bytes of the call.
  int64_t sent_bytes() const;
  /// Where the call was made: "train.cpp:12 (wte)".
  std::string where() const { return mine_.where.data(); }
  /// True once all ranks have called.
  bool agreed() const { return stage_ != Stage::kAgreeing; }
  /// Ranks of the wire that have not called yet, or whose messages have not come; empty where the
  /// wire cannot tell. A wire that blocks knows of one message at a time.
  std::vector<int> waits_for() const;

 private:
  enum class Stage { kAgreeing, kWalking, kNative, kDone };

  void begin();

  Wire& wire_;
  const RankNames& names_;
  const What what_;
  const Description mine_;
  const int64_t start_ns_;
  int64_t agreed_ns_ = 0;
  Stage stage_ = Stage::kAgreeing;
  std::vector<Description> all_;
  std::unique_ptr<Pending> pending_;
  std::optional<MessageWalk> walk_;
};

}  // namespace hanji::comm
