#include "hanji/launch/control_plane/server.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "hanji/base/run_clock.h"
#include "hanji/base/stop_signals.h"
#include "hanji/launch/control_plane/authenticator.h"
#include "hanji/launch/control_plane/sessions.h"
#include "hanji/launch/control_plane/table.h"
#include "hanji/launch/control_plane/wake.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kShortTick = 20ms;

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, base::Fd listener, Wake wake, base::HostPort place,
       base::PauseWatch pauses)
      : options_(std::move(options)),
        place_(std::move(place)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        pauses_(std::move(pauses)),
        authenticator_({.token = options_.token,
                        .greeting_time = options_.greeting_time,
                        .max_pending = static_cast<size_t>(options_.max_pending),
                        .on_refused = options_.on_refused}),
        sessions_(options_) {
    sessions_.set_world_size(options_.world_size);
  }

  ~Impl() {
    stopping_ = true;
    wake_.notify();
    thread_.join();
  }

  void start(Server& self) {
    thread_ = base::start_without_stop_signals([this, &self] { run(self); });
  }

  void set_world_size(int world_size) {
    const std::lock_guard lock(mutex_);
    sessions_.set_world_size(world_size);
  }

  bool set_if_absent(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    if (table_.find(key) != nullptr) return false;
    sessions_.deliver(table_.set(key, value));
    wake_.notify();
    return true;
  }

  bool empty() const {
    const std::lock_guard lock(mutex_);
    return sessions_.empty();
  }

  int64_t num_refused() const {
    const std::lock_guard lock(mutex_);
    return authenticator_.num_refused();
  }

  const base::HostPort& place() const { return place_; }

 private:
  void run(Server& self) {
    while (!stopping_) {
      wait();
      std::vector<LostClient> lost;
      {
        const std::lock_guard lock(mutex_);
        accept();
        for (Authenticator::AuthenticatedPeer& peer : authenticator_.take()) admit(std::move(peer));
        sessions_.serve(table_);
        lost = sessions_.take_lost(table_);
      }
      for (const LostClient& one : lost) {
        if (options_.on_lost) options_.on_lost(self, one);
      }
    }
  }

  void wait() {
    std::vector<pollfd> polls{{wake_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::chrono::milliseconds tick = std::max(kShortTick, options_.silence / 16);
    {
      const std::lock_guard lock(mutex_);
      authenticator_.append_polls(polls);
      sessions_.append_polls(polls);
      if (!authenticator_.empty() || sessions_.any_broken()) tick = kShortTick;
    }
    ::poll(polls.data(), polls.size(), static_cast<int>(tick.count()));
    wake_.clear();
  }

  void accept() {
    for (int i = 0; i < options_.max_pending; ++i) {
      auto socket = base::accept_tcp(listener_.get());
      if (!socket.ok()) return;
      authenticator_.accept(*std::move(socket));
    }
  }

  void admit(Authenticator::AuthenticatedPeer peer) {
    const base::HostPort from = peer.from;
    const Status status = sessions_.admit(std::move(peer));
    if (!status.ok()) authenticator_.refuse(from, status.message());
  }

  const ServerOptions options_;
  const base::HostPort place_;
  base::Fd listener_;
  Wake wake_;
  base::PauseWatch pauses_;
  mutable std::mutex mutex_;  ///< Of the three below.
  Authenticator authenticator_;
  Sessions sessions_;
  Table table_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  HANJI_ASSIGN_OR_RETURN(base::Fd listener, base::listen_tcp(options.place));
  HANJI_ASSIGN_OR_RETURN(base::HostPort place, base::local_place(listener.get()));
  HANJI_ASSIGN_OR_RETURN(Wake wake, Wake::create());
  HANJI_ASSIGN_OR_RETURN(auto pauses, base::PauseWatch::start());
  auto impl = std::make_unique<Impl>(std::move(options), std::move(listener), std::move(wake),
                                     std::move(place), std::move(pauses));
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  server->impl_->start(*server);
  return server;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

const base::HostPort& Server::place() const { return impl_->place(); }
void Server::set_world_size(int world_size) { impl_->set_world_size(world_size); }
int64_t Server::num_refused() const { return impl_->num_refused(); }

bool Server::set_if_absent(const std::string& key, const std::string& value) {
  return impl_->set_if_absent(key, value);
}

bool Server::drain(base::Deadline deadline) const {
  while (!impl_->empty()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

}  // namespace hanji::launch
