#include "hanji/launch/control_plane/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "hanji/base/start_thread.h"
#include "hanji/launch/control_plane/greeting.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr auto kRetryPause = 50ms;
constexpr auto kOneTry = 2s;
/// A server whose port refuses us for so long has ended; the network alone refuses nothing.
constexpr auto kGone = 700ms;
constexpr auto kGoodbyeTime = 1s;
constexpr int kTokenTries = 3;

Result<Hello> hello_of(const StoreOptions& options) {
  Hello hello;
  hello.role = static_cast<uint32_t>(options.role);
  hello.index = static_cast<uint32_t>(options.index);
  hello.world_size = static_cast<uint32_t>(options.world_size);
  hello.num_nodes = static_cast<uint32_t>(options.num_nodes);
  HANJI_RETURN_IF_ERROR(base::fill_random(hello.instance));
  HANJI_RETURN_IF_ERROR(base::fill_random(hello.nonce));
  put_text(options.build_id, hello.build_id);
  put_text(base::host_name(), hello.host);
  return hello;
}

bool may_pass(const Status& status) {
  return status.code() == Code::kPeerLost || status.code() == Code::kTimeout;
}

base::Deadline earlier(base::Deadline deadline, nanoseconds time) {
  return deadline.remaining() < time ? deadline : base::Deadline::after(time);
}

void pause_before_try(base::Deadline deadline) {
  std::this_thread::sleep_for(std::min<nanoseconds>(kRetryPause, deadline.remaining()));
}

/// The first connection: tries until somebody listens.
Result<Channel> first_channel(const StoreOptions& options, const Hello& hello) {
  int wrong_tokens = 0;
  while (true) {
    auto channel = connect_and_greet(options.server, options.source, hello, options.token,
                                     earlier(options.deadline, kOneTry));
    if (channel.ok()) return channel;
    const Status& why = channel.status();
    // A server whose pending connections overflow closes them too, so once is no proof.
    const bool token = why.code() == Code::kMismatch && ++wrong_tokens < kTokenTries;
    if (!may_pass(why) && !token) return why.at("join the run");
    if (options.deadline.passed()) {
      return base::timeout(fmt::format(
          "join the run at {}: {}. Does the launcher of node 0 (or rank 0) run there, and may this "
          "host reach it?",
          base::to_text(options.server), why.message()));
    }
    pause_before_try(options.deadline);
  }
}

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(StoreOptions options) {
  HANJI_ASSIGN_OR_RETURN(const Hello hello, hello_of(options));
  HANJI_ASSIGN_OR_RETURN(Channel channel, first_channel(options, hello));
  HANJI_RETURN_IF_ERROR(base::tune_connection(channel.fd(), options.silence));
  HANJI_ASSIGN_OR_RETURN(const base::HostPort own, base::local_place(channel.fd()));
  HANJI_ASSIGN_OR_RETURN(Wake wake, Wake::create());
  HANJI_ASSIGN_OR_RETURN(auto pauses, base::PauseWatch::start());
  std::unique_ptr<Client> client(new Client(std::move(options), hello, std::move(channel),
                                            std::move(wake), std::move(pauses)));
  client->local_address_ = own.host;
  try {
    client->thread_ = base::start_thread("start the thread of the control plane",
                                         [raw = client.get()] { raw->run(); });
  } catch (const Error& error) {
    client->lost_ = Status(error.code(), error.what());
    return client->lost_;
  }
  return client;
}

Client::Client(StoreOptions options, const Hello& hello, Channel channel, Wake wake,
               base::PauseWatch pauses)
    : options_(std::move(options)),
      hello_(hello),
      wake_(std::move(wake)),
      pauses_(std::move(pauses)),
      channel_(std::move(channel)),
      heard_ns_(base::running_ns()),
      beat_ns_(base::now_ns()) {
  hello_.resumes = 1;
}

Client::~Client() {
  const auto patience = base::Deadline::after(kGoodbyeTime);
  {
    std::unique_lock lock(mutex_);
    if (lost_.ok()) goodbye_ = submit({.operation = Operation::kGoodbye, .texts = {}});
    while (goodbye_ != 0 && lost_.ok() && !calls_[goodbye_].response && !patience.passed()) {
      answered_.wait_for(lock, patience.remaining());
    }
    stopping_ = true;
  }
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

Result<std::string> Client::call(Request request, base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!lost_.ok()) return lost_;
  const uint64_t id = submit(std::move(request));
  uint64_t cancel = 0;
  while (lost_.ok() && !calls_[id].response) {
    if (cancel == 0 && deadline.passed()) {
      cancel = submit(
          {.operation = Operation::kCancel, .number = static_cast<int64_t>(id), .texts = {}});
    }
    const bool bounded = cancel == 0 && deadline.remaining() < 1h;
    answered_.wait_for(lock, bounded ? deadline.remaining() : nanoseconds(1h));
  }
  const auto response = std::move(calls_[id].response);
  calls_.erase(id);
  if (cancel != 0) calls_.erase(cancel);
  if (!response) return lost_;
  if (response->code != Code::kOk) return Status(response->code, response->text);
  return response->text;
}

void Client::watch(Request request, Watcher watcher) {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) calls_[submit(std::move(request))].watcher = std::move(watcher);
}

/// With mutex_ held.
uint64_t Client::submit(Request request) {
  request.id = next_id_++;
  calls_[request.id];
  request.acknowledged = acknowledged();
  std::string bytes = to_bytes(request);
  if (channel_) channel_->queue(bytes);
  calls_[request.id].bytes = std::move(bytes);
  wake_.notify();
  return request.id;
}

/// With mutex_ held: the first id whose answer is missing.
uint64_t Client::acknowledged() const {
  for (const auto& [id, call] : calls_) {
    if (!call.response) return id;
  }
  return next_id_;
}

void Client::run() {
  while (true) {
    wait(options_.silence / 6);
    std::unique_lock lock(mutex_);
    if (stopping_ || !lost_.ok()) return;
    const Status status = exchange();
    const bool silent = silent_too_long();
    // The server closes the connection behind its answer.
    if (goodbye_ != 0 && calls_[goodbye_].response) return;
    if (!status.ok()) channel_.reset();
    lock.unlock();
    notify_watchers();
    if (!status.ok()) {
      reconnect();
    } else if (silent) {
      give_up(base::timeout(
          fmt::format("nothing was heard of it for {} ms", options_.silence.count())));
    }
  }
}

void Client::wait(nanoseconds time) {
  std::array<pollfd, 2> polls{pollfd{wake_.fd(), POLLIN, 0}, pollfd{-1, POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    if (channel_) polls[1].fd = channel_->fd();
    if (channel_ && channel_->wants_to_send()) polls[1].events |= POLLOUT;
  }
  ::poll(polls.data(), polls.size(), base::Deadline::after(time).poll_ms());
  wake_.clear();
}

/// Sends and receives what is possible now; with mutex_ held.
Status Client::exchange() {
  if (!channel_) return base::peer_lost("not connected");
  beat();
  HANJI_RETURN_IF_ERROR(channel_->flush());
  const Status received = channel_->receive();
  HANJI_RETURN_IF_ERROR(take_answers());
  return received;
}

Status Client::take_answers() {
  while (true) {
    HANJI_ASSIGN_OR_RETURN(const auto frame, channel_->next());
    if (!frame) return {};
    heard_ns_ = base::running_ns();
    HANJI_ASSIGN_OR_RETURN(Response response, parse_response(*frame));
    const auto call = calls_.find(response.id);
    if (call == calls_.end()) continue;  // Of a beat, or answered already.
    if (call->second.watcher) {
      if (response.code == Code::kOk) told_.push_back({call->second.watcher, response.text});
      calls_.erase(call);
      continue;
    }
    call->second.response = std::move(response);
    answered_.notify_all();
  }
}

/// Without the lock: a watcher may ask the store for something else.
void Client::notify_watchers() {
  for (const auto& [watcher, text] : std::exchange(told_, {})) watcher(text);
}

void Client::beat() {
  const int64_t now = base::now_ns();
  if (now - beat_ns_ < nanoseconds(options_.silence).count() / 3) return;
  beat_ns_ = now;
  // Id 0 is nobody's: a beat needs no second try.
  channel_->queue(to_bytes(Request{.operation = Operation::kPing,
                                   .id = 0,
                                   .acknowledged = acknowledged(),
                                   .number = 0,
                                   .texts = {}}));
}

bool Client::silent_too_long() const {
  return base::running_ns() - heard_ns_ > nanoseconds(options_.silence).count();
}

void Client::reconnect() {
  const auto gone = base::Deadline::after(kGone);
  const int64_t left = heard_ns_ + nanoseconds(options_.silence).count() - base::running_ns();
  const auto patience = base::Deadline::after(nanoseconds(std::max<int64_t>(left, 0)));
  while (true) {
    auto fresh = try_again(earlier(patience, kOneTry));
    if (fresh.ok()) return take_over(*std::move(fresh));
    const Status& why = fresh.status();
    const bool refused = why.code() == Code::kPeerLost && gone.passed();
    if (!may_pass(why) || refused || patience.passed()) return give_up(why);
    pause_before_try(patience);
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

Result<Channel> Client::try_again(base::Deadline deadline) {
  HANJI_RETURN_IF_ERROR(base::fill_random(hello_.nonce));
  return connect_and_greet(options_.server, options_.source, hello_, options_.token, deadline);
}

/// Goes on with a fresh connection: what has no answer yet is sent once more.
void Client::take_over(Channel fresh) {
  static_cast<void>(base::tune_connection(fresh.fd(), options_.silence));
  const std::lock_guard lock(mutex_);
  channel_ = std::move(fresh);
  heard_ns_ = base::running_ns();
  for (const auto& [id, call] : calls_) {
    if (!call.response) channel_->queue(call.bytes);
  }
  wake_.notify();
}

void Client::give_up(const Status& why) {
  const Status lost = base::peer_lost(fmt::format("lost the control plane at {}: {}",
                                                  base::to_text(options_.server), why.message()));
  {
    const std::lock_guard lock(mutex_);
    lost_ = lost;
    channel_.reset();
  }
  answered_.notify_all();
  if (options_.on_lost) options_.on_lost(lost);
}

}  // namespace hanji::launch
