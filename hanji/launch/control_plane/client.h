#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "hanji/base/run_clock.h"
#include "hanji/launch/control_plane/channel.h"
#include "hanji/launch/control_plane/handshake.h"
#include "hanji/launch/control_plane/request.h"
#include "hanji/launch/control_plane/wake.h"
#include "hanji/launch/store.h"

namespace hanji::launch {

/// The client's end of the control plane: a thread that owns the connection, beats every third of
/// `silence`, connects again when it breaks and sends again what has no answer yet. The server
/// knows requests by their ids, so each takes effect once.
class Client {
 public:
  static Result<std::unique_ptr<Client>> connect(StoreOptions options);
  ~Client();

  /// The answer to a request. Waits beyond the deadline only until the server has taken the request
  /// back, which tells what was missing.
  Result<std::string> call(Request request, base::Deadline deadline);
  /// For requests that nothing delays.
  Result<std::string> call(Request request) {
    return call(std::move(request), base::Deadline::never());
  }

  using Watcher = std::function<void(const std::string&)>;
  /// Gives the answer to `watcher`, on the client's thread.
  void watch(Request request, Watcher watcher);

  const std::string& local_address() const { return local_address_; }

 private:
  struct Call {
    std::string bytes;
    std::optional<Response> response;
    Watcher watcher;
  };

  Client(StoreOptions options, const Hello& hello, Channel channel, Wake wake,
         base::PauseWatch pauses);

  void run();
  void wait(std::chrono::nanoseconds time);
  Status exchange();
  Status take_answers();
  void beat();
  void reconnect();
  Result<Channel> try_again(base::Deadline deadline);
  void take_over(Channel fresh);
  void give_up(const Status& why);
  bool silent_too_long() const;
  uint64_t submit(Request request);
  uint64_t acknowledged() const;
  void notify_watchers();

  const StoreOptions options_;
  Hello hello_;
  std::string local_address_;
  Wake wake_;
  base::PauseWatch pauses_;
  std::mutex mutex_;  ///< Of all below.
  std::condition_variable answered_;
  std::optional<Channel> channel_;
  std::map<uint64_t, Call> calls_;
  uint64_t next_id_ = 1;
  std::vector<std::pair<Watcher, std::string>> told_;  ///< Only the thread uses it.
  int64_t heard_ns_;                                   ///< A time of base::running_ns().
  int64_t beat_ns_;
  uint64_t goodbye_ = 0;  ///< Its id, once said.
  bool stopping_ = false;
  Status lost_;
  std::jthread thread_;
};

}  // namespace hanji::launch
