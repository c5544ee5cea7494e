#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hanji/launch/control_plane/authenticator.h"
#include "hanji/launch/control_plane/channel.h"
#include "hanji/launch/control_plane/server.h"
#include "hanji/launch/control_plane/table.h"

namespace hanji::launch {

/// The clients that proved the token: who sits where, what each asked, which answers it may ask for
/// again. One thread at a time.
class Sessions {
 public:
  explicit Sessions(const ServerOptions& options) : options_(options) {}

  void set_world_size(int world_size) { world_size_ = world_size; }
  /// Seats a peer, or tells it why not; then that Status.
  Status admit(Authenticator::AuthenticatedPeer peer);
  void append_polls(std::vector<pollfd>& polls) const;
  /// Takes and answers what has come.
  void serve(Table& table);
  void deliver(const std::vector<Table::Reply>& replies);
  /// Removes and gives those that are lost by now.
  std::vector<LostClient> take_lost(Table& table);
  bool empty() const { return sessions_.empty(); }
  /// Whether some connection is broken and may come back.
  bool any_broken() const;

 private:
  struct Session {
    uint64_t id = 0;
    Hello hello;
    base::HostPort from;
    std::optional<Channel> channel;
    int64_t heard_ns = 0;  ///< A time of base::running_ns(), as broken_ns.
    int64_t broken_ns = 0;
    Status broken_by;
    bool has_left = false;
    uint64_t last_id = 0;                     ///< Of the requests that took effect.
    std::map<uint64_t, std::string> answers;  ///< Not acknowledged yet.
  };

  Status check(const Hello& hello) const;
  Status check_build(const Hello& hello);
  Result<Session*> seat_for(const Authenticator::AuthenticatedPeer& peer);
  void serve(Session& session, Table& table);
  Status exchange(Session& session, Table& table);
  Status take(Session& session, const std::string& frame, Table& table);
  void break_off(Session& session, const Status& why);
  std::optional<Status> why_lost(const Session& session) const;

  const ServerOptions& options_;
  int world_size_ = 0;
  std::string rank_build_;
  uint64_t next_id_ = 1;
  std::list<Session> sessions_;
};

}  // namespace hanji::launch
