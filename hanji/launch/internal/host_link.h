#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hanji/launch/control_plane/server.h"
#include "hanji/launch/control_plane/wake.h"
#include "hanji/launch/hosts.h"
#include "hanji/launch/internal/signal_relay.h"
#include "hanji/launch/internal/verdict.h"
#include "hanji/launch/multi_host.h"

namespace hanji::launch {

/// This host's launcher among those of a run: serves the control plane on node 0, meets the other
/// launchers, hears what ends the run and tells it.
class HostLink {
 public:
  /// Something that another host, or who started this launcher, told.
  struct News {
    std::optional<Verdict> verdict;
    int signal = 0;          ///< To pass on to this host's ranks; 0: none.
    bool all_ended = false;  ///< No rank runs on any host.
    std::string refused;     ///< A line about a stranger who wanted to join.
  };
  /// What goes on while open() waits.
  struct Opening {
    std::function<void(const std::string&)> on_refused;  ///< One line each.
    SignalRelay* relay = nullptr;                        ///< A signal ends the waiting.
    int signal = 0;                                      ///< Which one did.
  };

  /// Waits until all hosts have come.
  /// Errors  kTimeout naming the hosts that did not come, or after a signal; kInvalidArgument,
  ///         kMismatch: see Store.
  static Result<std::unique_ptr<HostLink>> open(const MultiHost& run, int num_ranks,
                                                Opening& opening);
  ~HostLink();

  int node() const { return run_.node; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& here() const { return nodes_[static_cast<size_t>(run_.node)]; }
  int world_size() const;
  /// MASTER_ADDR and MASTER_PORT for programs that meet by themselves.
  const base::HostPort& master() const { return master_; }
  /// What ranks read in join_hosts(), as sealed memory.
  Result<base::Fd> hosts_file() const;

  /// To poll for reading: there are news.
  std::vector<int> descriptors() const;
  std::optional<News> take();
  /// Makes this the verdict unless there is one; take() gives the one that holds.
  void send_verdict(int exit_code, const std::string& text);
  void send_signal(int signal);
  /// No rank runs here any more.
  void send_ended(int exit_code);
  /// After all hosts have ended: of the first one whose code was not 0.
  int exit_code() const;

 private:
  HostLink(const MultiHost& run, Wake wake)
      : run_(run), join_deadline_(base::Deadline::after(run.join_time)), wake_(std::move(wake)) {}
  Status serve();
  Status connect(Opening& opening);
  Status join(int num_ranks, Opening& opening);
  Status read_nodes(Opening& opening);
  Status look_up(Opening& opening);
  std::string missing_nodes(const std::vector<std::string>& keys) const;
  Status barrier(Opening& opening);
  void watch();
  void post(News news);
  void read_lifeline();

  const MultiHost run_;
  const base::Deadline join_deadline_;
  Wake wake_;
  std::mutex mutex_;  ///< Of news_.
  std::deque<News> news_;
  std::string lines_;  ///< Of the lifeline, not yet whole.
  bool lifeline_open_ = false;
  std::string source_;
  base::HostPort server_place_;
  base::HostPort master_;
  std::vector<Node> nodes_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Store> store_;  ///< Ends before the server does, and its thread before the rest.
};

}  // namespace hanji::launch
