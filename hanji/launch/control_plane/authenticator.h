#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/handshake.h"

namespace hanji::launch {

/// Connections that have not proved the token yet. Reads exactly the bytes of the next step of the
/// handshake from each, and understands none of them before the proof.
class Authenticator {
 public:
  struct Options {
    Token token{};
    std::chrono::milliseconds greeting_time{5'000};
    size_t max_pending = 64;
    std::function<void(const std::string&)> on_refused;
  };
  /// Who proved it: the caller reads the hello and answers.
  struct AuthenticatedPeer {
    base::Fd socket;
    base::HostPort from;
    Transcript transcript;
  };

  explicit Authenticator(Options options) : options_(std::move(options)) {}

  void accept(base::Fd socket);
  void append_polls(std::vector<pollfd>& polls) const;
  /// Takes what has come; the peers whose proof holds.
  std::vector<AuthenticatedPeer> take();
  bool empty() const { return pending_.empty(); }
  /// Counts a refusal, and tells it if it is the 1st, 10th, 100th ... of its kind.
  void refuse(const base::HostPort& from, const std::string& why);
  int64_t num_refused() const { return num_refused_; }

 private:
  struct Pending {
    base::Fd socket;
    base::HostPort from;
    std::vector<std::byte> input;  ///< At most a hello, then a proof.
    bool challenged = false;
    Transcript transcript;
    base::Deadline deadline = base::Deadline::never();
  };
  enum class Step { kWaits, kProved, kRefused };

  Step advance(Pending& pending);
  Step challenge(Pending& pending);
  Step read(Pending& pending, size_t size);
  void evict();

  Options options_;
  std::vector<Pending> pending_;
  std::map<std::string, int64_t> told_;  ///< Refusals by address and reason.
  int64_t num_refused_ = 0;
};

}  // namespace hanji::launch
