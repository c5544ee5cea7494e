#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "hanji/base/clock.h"
#include "hanji/base/tcp.h"
#include "hanji/launch/control_plane/token.h"
#include "hanji/launch/store.h"

namespace hanji::launch {

class Server;

/// A client whose connection ended without goodbye, or who was silent for too long.
struct LostClient {
  Role role = Role::kRank;
  int index = 0;
  std::string host;     ///< As it named itself.
  std::string address;  ///< Where it came from.
  Status why;
};

struct ServerOptions {
  base::HostPort place = {};  ///< A numeric address of one interface; port 0 takes a free one.
  Token token{};
  int num_nodes = 1;
  int world_size = 0;         ///< 0: not known yet, see Server::set_world_size().
  std::string build_id = {};  ///< That launchers must have; ranks follow the first of them.
  std::chrono::milliseconds silence{15'000};       ///< So long a client may say nothing.
  std::chrono::milliseconds reconnect_time{500};   ///< After a broken connection.
  std::chrono::milliseconds greeting_time{5'000};  ///< From connecting to the proof.
  int max_pending = 64;                            ///< Connections without proof.
  /// Both from the server's thread; must not block, and may call set_if_absent().
  std::function<void(Server&, const LostClient&)> on_lost = {};
  /// One line about who was refused and why; repeated ones are told at 1, 10, 100 ...
  std::function<void(const std::string&)> on_refused = {};
};

/// The control plane's one server: a thread that proves who connects, keeps the store and notices
/// who is lost. An unauthenticated client costs it at most 288 bytes and greeting_time, and
/// changes nothing; of too many at once, the oldest of the busiest address goes first.
class Server {
 public:
  /// Errors  as base::listen_tcp().
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  /// Ends the thread; who is still connected loses it.
  ~Server();

  /// Where it listens, with the port that it got.
  const base::HostPort& place() const;
  /// From now on ranks may connect.
  void set_world_size(int world_size);
  /// True if the key was absent and holds `value` now.
  bool set_if_absent(const std::string& key, const std::string& value);
  /// Waits until every client has said goodbye or is lost; false at the deadline.
  bool drain(base::Deadline deadline) const;
  /// Connections refused so far.
  int64_t num_refused() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hanji::launch
