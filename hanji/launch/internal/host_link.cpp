#include "hanji/launch/internal/host_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "hanji/base/socket.h"
#include "hanji/base/stop_signals.h"
#include "hanji/base/version.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/node_list.h"
#include "hanji/launch/internal/sealed_file.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeaveTime = 2s;
constexpr int kLostExit = 6;  // peer_lost, in the table of exit codes.

/// Between looking for signals, while hosts are awaited; a slow link needs longer to connect.
constexpr auto kLook = 200ms;
constexpr auto kConnectTry = 3s;

std::string node_key(int node) { return fmt::format("hanji/node/{}", node); }
std::string ended_key(int node) { return fmt::format("hanji/ended/{}", node); }

std::vector<std::string> keys_of(std::string (*key)(int), int num_nodes) {
  std::vector<std::string> keys;
  for (int node = 0; node < num_nodes; ++node) keys.push_back(key(node));
  return keys;
}

/// Such a code came of waiting alone.
bool may_wait(const Status& status, base::Deadline deadline) {
  return status.code() == Code::kTimeout && !deadline.passed();
}

/// A port that is free now on this host, for programs that serve one themselves.
Result<int> free_port(const std::string& address) {
  HANJI_ASSIGN_OR_RETURN(const base::Fd probe, base::listen_tcp({address, 0}));
  HANJI_ASSIGN_OR_RETURN(const base::HostPort place, base::local_place(probe.get()));
  return place.port;
}

/// A launcher that is gone ends the run; of a rank its launcher tells more.
void judge(Server& server, const LostClient& lost) {
  if (lost.role != Role::kLauncher) return;
  const Verdict verdict{lost.index, kLostExit,
                        fmt::format("node {} (host {}, {}) is lost, its launcher is gone: {}",
                                    lost.index, lost.host, lost.address, lost.why.message())};
  server.set_if_absent(kVerdictKey, to_json(verdict));
}

std::optional<int> signal_of(std::string_view word) {
  for (const int signal : base::kStopSignals) {
    if (::sigabbrev_np(signal) == word) return signal;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<HostLink>> HostLink::open(const MultiHost& run, int num_ranks,
                                                 Opening& opening) {
  if (run.num_nodes < 1 || run.node < 0 || run.node >= run.num_nodes) {
    return base::invalid_argument(fmt::format("node {} of {}: give each host a rank from 0 to {}",
                                              run.node, run.num_nodes,
                                              std::max(run.num_nodes, 1) - 1));
  }
  HANJI_ASSIGN_OR_RETURN(Wake wake, Wake::create());
  std::unique_ptr<HostLink> link(new HostLink(run, std::move(wake)));
  link->lifeline_open_ = run.lifeline >= 0;
  link->server_place_ = run.rendezvous;
  if (run.node == 0) HANJI_RETURN_IF_ERROR(link->serve());
  HANJI_RETURN_IF_ERROR(link->connect(opening));
  link->watch();
  HANJI_RETURN_IF_ERROR(link->join(num_ranks, opening));
  return link;
}

HostLink::~HostLink() {
  store_.reset();
  if (server_) static_cast<void>(server_->drain(base::Deadline::after(kLeaveTime)));
}

Status HostLink::serve() {
  HANJI_ASSIGN_OR_RETURN(auto places, base::resolve(run_.rendezvous));
  if (!run_.interface.empty()) {
    HANJI_ASSIGN_OR_RETURN(const std::string own, address_of(run_.interface, places.front().host));
    places = {{own, run_.rendezvous.port}};
  }
  ServerOptions options;
  options.token = run_.token;
  options.num_nodes = run_.num_nodes;
  options.build_id = base::build_id();
  options.silence = run_.silence;
  options.on_lost = judge;
  options.on_refused = [this](const std::string& text) { post({.verdict = {}, .refused = text}); };
  Status last;
  for (const base::HostPort& place : places) {
    options.place = place;
    auto server = Server::start(options);
    last = server.status();
    if (!server.ok()) continue;
    server_ = *std::move(server);
    server_place_ = server_->place();
    return {};
  }
  return last.at("node 0 serves the other hosts at --rendezvous");
}

Status HostLink::connect(Opening& opening) {
  StoreOptions options;
  options.server = server_place_;
  options.token = run_.token;
  options.role = Role::kLauncher;
  options.index = run_.node;
  options.num_nodes = run_.num_nodes;
  options.build_id = base::build_id();
  options.silence = run_.silence;
  options.on_lost = [this](const Status& why) {
    post({.verdict = Verdict{0, kLostExit, "node 0 is lost: " + why.message()}, .refused = {}});
  };
  if (run_.node != 0 && !run_.interface.empty()) {
    HANJI_ASSIGN_OR_RETURN(const auto places, base::resolve(run_.rendezvous));
    HANJI_ASSIGN_OR_RETURN(source_, address_of(run_.interface, places.front().host));
  }
  options.source = source_;
  while (true) {
    options.deadline = base::Deadline::after(
        std::min<std::chrono::nanoseconds>(kConnectTry, join_deadline_.remaining()));
    auto store = Store::connect(options);
    if (store.ok()) {
      store_ = *std::move(store);
      return {};
    }
    if (!may_wait(store.status(), join_deadline_)) return store.status();
    HANJI_RETURN_IF_ERROR(look_up(opening));
  }
}

/// What happens while others are awaited: strangers come, and the user may lose patience.
Status HostLink::look_up(Opening& opening) {
  while (const auto news = take()) {
    if (!news->refused.empty() && opening.on_refused) opening.on_refused(news->refused);
    if (news->signal != 0) opening.signal = news->signal;
    if (news->verdict) return base::peer_lost(news->verdict->text);
  }
  const auto signal = opening.relay == nullptr ? std::nullopt : opening.relay->take();
  if (signal) opening.signal = *signal;
  if (opening.signal == 0) return {};
  const std::string text = fmt::format("signal {} came to node {} before all hosts had joined",
                                       opening.signal, run_.node);
  if (store_) send_verdict(128 + opening.signal, text);
  return base::timeout(text);
}

/// Tells who we are and learns who the others are.
Status HostLink::join(int num_ranks, Opening& opening) {
  const Node own{base::host_name(), store_->local_address(), 0, num_ranks};
  if (run_.node == 0) {
    HANJI_ASSIGN_OR_RETURN(const int port, free_port(own.address));
    HANJI_RETURN_IF_ERROR(store_->set("hanji/master_port", std::to_string(port)));
  }
  HANJI_RETURN_IF_ERROR(store_->set(node_key(run_.node), to_json(own)));
  HANJI_RETURN_IF_ERROR(read_nodes(opening));
  const int world_size = number_ranks(nodes_);
  if (server_) server_->set_world_size(world_size);
  HANJI_ASSIGN_OR_RETURN(const std::string port, store_->get("hanji/master_port", join_deadline_));
  master_ = {nodes_[0].address, parse_integer(port).value_or(0)};
  return barrier(opening);
}

Status HostLink::read_nodes(Opening& opening) {
  const std::vector<std::string> keys = keys_of(node_key, run_.num_nodes);
  Status all = store_->wait(keys, base::Deadline::after(kLook));
  while (may_wait(all, join_deadline_)) {
    HANJI_RETURN_IF_ERROR(look_up(opening));
    all = store_->wait(keys, base::Deadline::after(kLook));
  }
  if (all.code() == Code::kTimeout) {
    return base::timeout(fmt::format(
        "not all of {} hosts came to {}; missing: node {}. Was `hanji run` started there with this "
        "--rendezvous and its own --node-rank?",
        run_.num_nodes, base::to_text(server_place_), missing_nodes(keys)));
  }
  HANJI_RETURN_IF_ERROR(all);
  for (const std::string& key : keys) {
    HANJI_ASSIGN_OR_RETURN(const std::string text, store_->get(key, join_deadline_));
    HANJI_ASSIGN_OR_RETURN(Node node, parse_node(text));
    nodes_.push_back(std::move(node));
  }
  return {};
}

std::string HostLink::missing_nodes(const std::vector<std::string>& keys) const {
  std::vector<int> missing;
  for (int node = 0; node < run_.num_nodes; ++node) {
    const auto here = store_->check(std::span(&keys[static_cast<size_t>(node)], 1));
    if (here.ok() && !*here) missing.push_back(node);
  }
  return fmt::format("{}", fmt::join(missing, ", "));
}

/// Ranks may connect once the server knows how many there are.
Status HostLink::barrier(Opening& opening) {
  while (true) {
    const Status met =
        store_->barrier("hanji/nodes", run_.node, run_.num_nodes, base::Deadline::after(kLook));
    if (!may_wait(met, join_deadline_)) return met;
    HANJI_RETURN_IF_ERROR(look_up(opening));
  }
}

void HostLink::watch() {
  store_->watch(kVerdictKey, [this](const std::string& json) {
    auto verdict = parse_verdict(json);
    post({.verdict = verdict.ok() ? *std::move(verdict)
                                  : Verdict{-1, kLostExit, verdict.status().message()},
          .refused = {}});
  });
  store_->watch(kSignalKey, [this](const std::string& text) {
    post({.verdict = {}, .signal = parse_integer(text).value_or(SIGTERM), .refused = {}});
  });
  store_->watch_all(keys_of(ended_key, run_.num_nodes),
                    [this] { post({.verdict = {}, .all_ended = true, .refused = {}}); });
}

int HostLink::world_size() const { return nodes_.back().first_rank + nodes_.back().num_ranks; }

Result<base::Fd> HostLink::hosts_file() const {
  const HostsFile file{server_place_, run_.token, source_, run_.silence, run_.node, nodes_};
  return write_sealed(to_json(file), "list of hosts");
}

std::vector<int> HostLink::descriptors() const {
  std::vector<int> descriptors = {wake_.fd()};
  if (lifeline_open_) descriptors.push_back(run_.lifeline);
  return descriptors;
}

void HostLink::post(News news) {
  const std::lock_guard lock(mutex_);
  news_.push_back(std::move(news));
  wake_.notify();
}

std::optional<HostLink::News> HostLink::take() {
  read_lifeline();
  const std::lock_guard lock(mutex_);
  wake_.clear();
  if (news_.empty()) return {};
  News news = std::move(news_.front());
  news_.pop_front();
  if (!news_.empty()) wake_.notify();
  return news;
}

void HostLink::read_lifeline() {
  while (lifeline_open_ && base::wait_readable(run_.lifeline, base::Deadline::after(0s)).ok()) {
    std::array<char, 64> bytes;
    const ssize_t got = ::read(run_.lifeline, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      lifeline_open_ = false;
      const Verdict verdict{run_.node, kLostExit,
                            fmt::format("who started the launcher of node {} (host {}) is gone",
                                        run_.node, base::host_name())};
      // Before the others are met, nobody else needs to know.
      if (store_) store_->propose(kVerdictKey, to_json(verdict));
      if (nodes_.empty()) post({.verdict = verdict, .refused = {}});
      return;
    }
    lines_.append(bytes.data(), static_cast<size_t>(got));
    for (size_t end; (end = lines_.find('\n')) != lines_.npos; lines_.erase(0, end + 1)) {
      if (const auto signal = signal_of(lines_.substr(0, end)))
        post({.verdict = {}, .signal = *signal, .refused = {}});
    }
    if (lines_.size() > bytes.size()) lines_.clear();
  }
}

void HostLink::send_verdict(int exit_code, const std::string& text) {
  store_->propose(kVerdictKey, to_json(Verdict{run_.node, exit_code, text}));
}

void HostLink::send_signal(int signal) { store_->propose(kSignalKey, std::to_string(signal)); }

void HostLink::send_ended(int exit_code) {
  store_->propose(ended_key(run_.node), std::to_string(exit_code));
}

int HostLink::exit_code() const {
  for (int node = 0; node < run_.num_nodes; ++node) {
    // All are set; a store that is lost since gives nothing.
    const auto code = store_->get(ended_key(node), base::Deadline::after(run_.silence));
    if (code.ok() && *code != "0") return parse_integer(*code).value_or(kLostExit);
  }
  return 0;
}

}  // namespace hanji::launch
