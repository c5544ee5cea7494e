#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/choice_table.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/shm/message_wait.h"
#include "hanji/trace/ranges.h"

namespace hanji::comm {

class CallBatch;

/// So long the word that ends the job may take after a connection is lost: launchers and watchdogs of the
/// same host tell it at once, those of another host when they have given up to connect again.
inline constexpr auto kVerdictTime = std::chrono::milliseconds(900);

/// What one rank's groups know of each other: a group and all that came out of it.
struct GroupFamily {
  std::mutex mutex;
  int next_id = 0;  ///< Ids below have been taken.
  std::vector<std::weak_ptr<GroupState>> members;
  /// Also driven by a thread that waits here: messages between hosts beside what moves inside one.
  /// Set before the first call.
  std::weak_ptr<GroupFamily> beside;
  std::function<void()> before_call;  ///< Set before the first call.
  /// Where the word that ends the job stands, if not in the heaps of the groups. Set before the first call.
  std::shared_ptr<shm::Segment> segment;
  std::mutex channels_mutex;  ///< Taken before `mutex`.
  /// By sender and receiver, ranks of the host: what carries messages, while a group keeps it.
  std::map<std::pair<int, int>, std::weak_ptr<GroupState>> channels;
  /// Shards that peers may still look at, whose own lease has ended; with the count of those peers.
  std::vector<std::pair<at::Tensor, at::Tensor>> leased;
};

/// How a call is known after it was submitted.
struct Submitted {
  uint64_t sequence = 0;  ///< Of the group's calls, from 1.
  uint64_t ticket = 0;    ///< Of the engine.
};

/// Where a part of a fused call's output goes at its end.
struct Scattered {
  at::Tensor from, to;
};

/// What all handles of one group on one rank share: the engine, and the calls under way.
///
/// `mutex_` is held for bounded work only, except by a waiter of a group without a thread, for that
/// group and for those of its family that the same thread uses: nobody else may call there.
/// Completions are told after it is released.
class GroupState {
 public:
  using OnDone = std::function<void(const Status&)>;
  /// Makes the subgroup of `members`, ranks of the group, on whose id all its ranks have agreed.
  using Divide = std::function<Group(int id, const std::vector<int>& members, GroupOptions)>;

  /// The ranks of a channel, and what both of them are called in messages.
  struct Ends {
    int sender = 0;
    int receiver = 0;
    RankNames names = {};
  };
  /// Finds or makes what carries messages from one rank of the group to another; the group keeps it.
  using Connect = std::function<std::shared_ptr<GroupState>(const Ends& ends)>;

  /// `divide` is null where the engine cannot be divided.
  static std::shared_ptr<GroupState> make(std::unique_ptr<Engine> engine, Heap heap,
                                          GroupOptions options, std::shared_ptr<GroupFamily> family,
                                          Divide divide, Connect connect = nullptr);
  /// Finishes what is under way, for 10 s at most, not at all after an error or while unwinding.
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// How calls like this one are carried out, chosen once; its tensors may be missing.
  /// Errors  throws Error as choose().
  std::shared_ptr<const Choice> prepare(const Request& request);
  /// Starts a call that is carried out as prepare() said. A small one with none open before it is
  /// polled for about a microsecond: its peers are on their way. Takes the request's tensors.
  Submitted start(Request& request, const Choice& choice);
  /// prepare() and start(). `scattered`: of a request that was made of several.
  Submitted submit(Request&& request, std::vector<Scattered>&& scattered = {});
  /// One call if another rank waits for it and none is open; its sequence is 0 if not.
  Submitted submit_if_called(Request&& request);
  /// From any thread, also while another waits.
  bool cancel(uint64_t ticket) { return engine_->cancel(ticket).or_throw(); }
  /// Every later call throws this.
  void fail(const Status& status);

  /// From here to close_batch(), what is called on the group is kept there. False if one is open.
  bool open_batch(std::shared_ptr<CallBatch> batch);
  void close_batch();
  std::shared_ptr<CallBatch> batch();

  void then(uint64_t sequence, OnDone on_done);
  void advance();
  /// Moves what else this thread has under way, as a wait does.
  void advance_others();
  bool done(uint64_t sequence);
  void wait(uint64_t sequence);

  /// Makes the group of those that live; on shared memory only.
  using GoOn = std::function<Group(std::chrono::nanoseconds deadline)>;
  void set_go_on(GoOn go_on) { go_on_ = std::move(go_on); }
  const GoOn& go_on() const { return go_on_; }
  /// What its ranks are called in the first group of the family.
  void set_members(std::vector<int> members) { members_ = std::move(members); }
  const std::vector<int>& members() const { return members_; }
  /// What its ranks are called among all of the job; empty: as in the group. Before the first wait.
  void set_job_ranks(std::vector<int> ranks) { job_ranks_ = std::move(ranks); }
  const std::vector<int>& job_ranks() const { return job_ranks_; }

  const Engine& engine() const { return *engine_; }
  Heap& heap() { return heap_; }
  const GroupOptions& options() const { return options_; }
  const Divide& divide() const { return divide_; }
  const Connect& connect() const { return connect_; }  ///< Null where nothing carries messages.
  /// Carries the group's messages by what carries those of another. Before the first message.
  void set_connect(Connect connect) { connect_ = std::move(connect); }
  GroupFamily& family() const { return *family_; }
  const std::shared_ptr<GroupFamily>& shared_family() const { return family_; }
  Stats stats();
  /// Runs calls of this group that end within it and are not counted: they are none of a step's.
  void run_uncounted(const std::function<void()>& calls);
  uint64_t sequence();
  /// Numbers the makers of calls from 1, for new_tags().
  uint64_t next_maker() { return ++num_makers_; }

 private:
  struct Pending {
    uint64_t ticket = 0;
    int64_t bytes = 0;
    trace::RangeId range = 0;
    shm::MessageCall shown;              // where no flags show it
    at::Tensor input, output, copy_out;  // as in Request
    std::vector<Scattered> scattered;
    std::vector<OnDone> on_done;
  };
  /// Someone to tell how a call ended.
  struct Notice {
    OnDone on_done;
    Status status;
  };
  /// Another group that this thread drives while it waits. The lock goes before the state.
  struct Sibling {
    std::shared_ptr<GroupState> state;
    std::unique_lock<std::mutex> lock;
  };
  enum class Look : bool { kNo, kAtPeers };

  GroupState(std::unique_ptr<Engine> engine, Heap heap, GroupOptions options,
             std::shared_ptr<GroupFamily> family, Divide divide);
  void drive(const std::stop_token& stop);  // the group's own thread
  bool poll(Look look);                     // one engine_->advance(); true if a call ended
  bool await_work(const std::stop_token& stop, bool lingers);  // true if there is some
  // How many polls in a row now ended no call; rests if there were `patience` before.
  int poll_or_rest(int idle_polls, int patience);
  static void notify(const std::vector<Notice>& notices);
  // Under mutex_:
  Submitted submit_locked(Request& request, std::vector<Scattered>&& scattered);
  Submitted start_locked(Request& request, const Choice& choice,
                         std::vector<Scattered>&& scattered);
  trace::RangeId range_of(const Request& request) const;
  const Choice& choice_for(const Request& request);
  const ChoiceTable::Entry& kept_choice(const Request& request);
  Choice chosen(const Request& request);
  bool idle() const { return submitted_ == completed_; }
  Pending& open_call(uint64_t sequence) { return calls_[sequence & (calls_.size() - 1)]; }
  Pending& open_next();                                        // of the call submitted_ + 1
  bool ends_at_once(const Request& request, uint64_t ticket);  // polls for about a microsecond
  void wake_thread();
  bool small_is_done();  // the open call, if it is small and alone
  void wait_long(uint64_t sequence, std::unique_lock<std::mutex>& lock);
  bool is_shown() const;  // what it waits for must be written for others to see it
  shm::MessageCall to_show(const Request& request) const;
  const shm::MessageGroup& shown_group();
  void drive_for_thread(uint64_t sequence, std::unique_lock<std::mutex>& lock);
  void drive_until(uint64_t sequence);
  std::vector<Sibling> siblings();
  void add_siblings(GroupFamily& family, std::vector<Sibling>& found);
  bool finished(uint64_t sequence) const;  // throws the group's error for a call that is lost
  void note(const Status& status);
  Status verdict_or(const Status& status) const;
  std::vector<Notice> retire();
  void finish(const Pending& pending);
  void complete(int64_t bytes);

  std::unique_ptr<Engine> engine_;
  Heap heap_;
  GroupOptions options_;
  std::shared_ptr<GroupFamily> family_;
  Divide divide_;
  Connect connect_;
  GoOn go_on_;
  std::vector<int> members_;
  std::vector<int> job_ranks_;
  std::optional<shm::MessageGroup> shown_group_;

  std::mutex mutex_;
  std::condition_variable_any changed_;  // there is something to do for the group's thread
  ChoiceTable choices_;
  Choice own_steps_;            // of the last call that brought its own
  std::vector<Pending> calls_;  // those that are open: a ring by sequence, a power of two long
  uint64_t submitted_ = 0;
  std::atomic<uint64_t> completed_ = 0;  // grows under mutex_; read without it as well
  std::thread::id caller_;               // of the last submit
  int waiters_ = 0;                      // who drive in place of the group's thread
  bool asleep_ = false;                  // the group's thread, until it is woken
  Status status_;                        // the first error; final
  Stats stats_;
  Stats uncounted_;  // of run_uncounted()
  std::atomic<bool> has_unit_ = false;
  std::atomic<uint64_t> num_makers_ = 0;
  std::shared_ptr<CallBatch> batch_;
  std::jthread thread_;
};

}  // namespace hanji::comm
