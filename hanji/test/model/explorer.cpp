#include "hanji/test/model/explorer.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <unordered_set>

#include "hanji/base/checksum.h"
#include "hanji/test/model/arena.h"
#include "hanji/test/model/fiber.h"

namespace hanji::test::model {
namespace {

/// What can happen next: a thread goes on, one of its stores is committed, or it is killed.
struct Transition {
  enum class Kind : uint8_t { kRun, kCommit, kKill } kind;
  int8_t thread;
  uint8_t index;  ///< kCommit: in the thread's buffer. kKill: stores that it had done.
};

/// All that there is at one moment.
struct Snapshot {
  std::vector<Fiber::Saved> fibers;
  std::vector<std::vector<std::byte>> arenas;
  std::vector<std::byte> shared;
  Machine::State machine;
};

/// A state whose transitions are tried one after another.
struct Branch {
  std::vector<Transition> transitions;
  size_t next = 1;
  size_t depth = 0;
  Snapshot snapshot;
};

std::string_view name_of(Pending::Kind kind) {
  switch (kind) {
    case Pending::Kind::kBegin: return "begins";
    case Pending::Kind::kLoad: return "loads";
    case Pending::Kind::kStore: return "stores";
    case Pending::Kind::kUpdate: return "updates";
    case Pending::Kind::kFence: return "passes a fence";
    case Pending::Kind::kPause: return "polls again";
    case Pending::Kind::kSleep: return "goes to sleep on";
    case Pending::Kind::kAsleep: return "wakes on";
    case Pending::Kind::kWake: return "wakes who sleeps on";
    case Pending::Kind::kAwaitEnd: return "saw the end of another";
  }
  return "?";
}

class Explorer {
 public:
  Explorer(const Program& program, int64_t max_states, const Weakening& weakening)
      : program_(program), max_states_(max_states), machine_(weakening), saved_(program.shared) {
    saved_.insert(saved_.end(), program.unread.begin(), program.unread.end());
    for (const auto& data : program.data) machine_.treat_as_data(data.data(), data.size());
    for (const Named& named : program.names)
      machine_.set_name(named.begin, named.bytes, named.name);
    for (size_t i = 0; i < program.threads.size(); ++i) {
      fibers_.push_back(std::make_unique<Fiber>());
      arenas_.push_back(std::make_unique<Arena>());
    }
    for (const auto& region : program.unread) {
      machine_.treat_as_unread(region.data(), region.size());
    }
    for (const auto& region : saved_) {
      initial_.insert(initial_.end(), region.begin(), region.end());
    }
  }

  Outcome run() {
    current_machine() = &machine_;
    while (!round()) {
    }
    current_machine() = nullptr;
    load_shared(initial_);
    return outcome_;
  }

 private:
  int num_threads() const { return static_cast<int>(fibers_.size()); }

  /// False: it found out that more is shared than it took for shared.
  bool round() {
    outcome_ = {};
    seen_.clear();
    branches_.clear();
    story_.clear();
    load_shared(initial_);
    machine_.begin(num_threads(), program_.mortal);
    for (int thread = 0; thread < num_threads(); ++thread) {
      arenas_[thread]->reset();
      fibers_[thread]->begin([this, thread] {
        Arena::use(arenas_[thread].get());
        program_.threads[thread]();
        Arena::use(nullptr);
      });
    }
    for (int thread = 0; thread < num_threads(); ++thread) resume(thread);
    return explore();
  }

  bool explore() {
    while (outcome_.violation.empty()) {
      if (machine_.take_found_sharing()) return false;
      const bool fresh = seen_.insert(digest()).second;
      if (fresh && ++outcome_.num_states > max_states_) return true;
      if (!(fresh ? go_on() : go_back())) break;
    }
    outcome_.complete = outcome_.violation.empty();
    return true;
  }

  /// From a state that was never seen.
  bool go_on() {
    std::vector<Transition> transitions = enabled();
    if (transitions.empty()) {
      if (!all_ended()) {
        fail("nobody can go on: " + waiting());
        return false;
      }
      ++outcome_.num_ends;
      return go_back();
    }
    const Transition first = transitions[0];
    if (transitions.size() > 1) {
      branches_.push_back({std::move(transitions), 1, story_.size(), save()});
    }
    take(first);
    return true;
  }

  /// To the last state that has something else to try.
  bool go_back() {
    if (branches_.empty()) return false;
    Branch& branch = branches_.back();
    restore(branch.snapshot);
    story_.resize(branch.depth);
    const Transition transition = branch.transitions[branch.next++];
    if (branch.next == branch.transitions.size()) branches_.pop_back();
    take(transition);
    return true;
  }

  std::vector<Transition> enabled() const {
    std::vector<Transition> transitions;
    for (int i = 0; i < num_threads(); ++i) {
      const auto thread = static_cast<int8_t>(i);
      if (machine_.can_run(i)) transitions.push_back({Transition::Kind::kRun, thread, 0});
      const size_t stores = machine_.state().threads[i].buffer.size();
      for (size_t index = 0; index < stores; ++index) {
        if (!machine_.can_commit(i, index)) continue;
        transitions.push_back({Transition::Kind::kCommit, thread, static_cast<uint8_t>(index)});
      }
    }
    if (program_.mortal >= 0) add_deaths(transitions);
    return transitions;
  }

  /// After each store that nobody else may have seen yet.
  void add_deaths(std::vector<Transition>& transitions) const {
    const auto& thread = machine_.state().threads[program_.mortal];
    if (thread.dead) return;
    const size_t points = thread.buffer.size() + (thread.ended ? 0 : 1);
    for (size_t kept = 0; kept < points; ++kept) {
      transitions.push_back({Transition::Kind::kKill, static_cast<int8_t>(program_.mortal),
                             static_cast<uint8_t>(kept)});
    }
  }

  void take(const Transition& transition) {
    ++outcome_.num_transitions;
    const auto& thread = machine_.state().threads[transition.thread];
    const uint32_t cell = transition.kind == Transition::Kind::kCommit
                              ? thread.buffer[transition.index].cell
                              : thread.pending.cell;
    story_.push_back({transition, thread.pending.kind, cell});
    outcome_.depth = std::max(outcome_.depth, static_cast<int>(story_.size()));
    switch (transition.kind) {
      case Transition::Kind::kRun: resume(transition.thread); break;
      case Transition::Kind::kCommit: machine_.commit(transition.thread, transition.index); break;
      case Transition::Kind::kKill: machine_.kill(transition.thread, transition.index); break;
    }
  }

  void resume(int thread) {
    machine_.set_running(thread);
    fibers_[thread]->resume();
    Arena::use(nullptr);
    if (fibers_[thread]->ended()) {
      machine_.set_ended(thread);
      const std::string& error = fibers_[thread]->error();
      if (!error.empty()) fail(fmt::format("thread {} threw: {}", thread, error));
    }
    if (!machine_.violation().empty()) fail(machine_.violation());
  }

  bool gone(int thread) const {
    return machine_.state().threads[thread].ended || machine_.state().threads[thread].dead;
  }
  bool all_ended() const {
    for (int thread = 0; thread < num_threads(); ++thread) {
      if (!gone(thread)) return false;
    }
    return true;
  }
  std::string waiting() const {
    std::string text;
    for (int i = 0; i < num_threads(); ++i) {
      if (gone(i)) continue;
      const Pending& pending = machine_.state().threads[i].pending;
      text +=
          fmt::format("{}thread {} {} {}", text.empty() ? "" : ", ", i,
                      pending.kind == Pending::Kind::kAsleep ? "sleeps on" : name_of(pending.kind),
                      needs_cell(pending.kind) ? machine_.name_of_cell(pending.cell) : "");
    }
    return text;
  }
  static bool needs_cell(Pending::Kind kind) {
    return kind == Pending::Kind::kLoad || kind == Pending::Kind::kStore ||
           kind == Pending::Kind::kUpdate || kind == Pending::Kind::kSleep ||
           kind == Pending::Kind::kAsleep || kind == Pending::Kind::kWake;
  }

  void fail(const std::string& what) {
    if (!outcome_.violation.empty()) return;
    outcome_.violation = what + "\n";
    for (const Event& event : story_) outcome_.violation += "  " + describe(event) + "\n";
  }

  struct Event {
    Transition transition;
    Pending::Kind kind;
    uint32_t cell;
  };
  std::string describe(const Event& event) const {
    const int thread = event.transition.thread;
    switch (event.transition.kind) {
      case Transition::Kind::kCommit:
        return fmt::format("thread {}'s store to {} is seen", thread,
                           machine_.name_of_cell(event.cell));
      case Transition::Kind::kKill: return fmt::format("thread {} is killed", thread);
      case Transition::Kind::kRun: break;
    }
    return fmt::format("thread {} {} {}", thread, name_of(event.kind),
                       needs_cell(event.kind) ? machine_.name_of_cell(event.cell) : "");
  }

  Snapshot save() const {
    Snapshot snapshot;
    snapshot.fibers.resize(fibers_.size());
    for (size_t i = 0; i < fibers_.size(); ++i) {
      fibers_[i]->save(snapshot.fibers[i]);
      const auto used = arenas_[i]->used();
      snapshot.arenas.emplace_back(used.begin(), used.end());
    }
    for (const auto& region : saved_) {
      snapshot.shared.insert(snapshot.shared.end(), region.begin(), region.end());
    }
    snapshot.machine = machine_.state();
    return snapshot;
  }

  void restore(const Snapshot& snapshot) {
    for (size_t i = 0; i < fibers_.size(); ++i) {
      fibers_[i]->restore(snapshot.fibers[i]);
      const auto& bytes = snapshot.arenas[i];
      arenas_[i]->reset(bytes.size());
      std::memcpy(arenas_[i]->used().data(), bytes.data(), bytes.size());
    }
    load_shared(snapshot.shared);
    machine_.restore(snapshot.machine);
  }

  void load_shared(const std::vector<std::byte>& bytes) {
    size_t at = 0;
    for (const auto& region : saved_) {
      std::memcpy(region.data(), bytes.data() + at, region.size());
      at += region.size();
    }
  }

  uint64_t digest() {
    words_.clear();
    for (size_t i = 0; i < fibers_.size(); ++i) {
      if (gone(static_cast<int>(i))) continue;
      words_.push_back(base::xxh3(fibers_[i]->live_stack()));
      words_.push_back(base::xxh3(arenas_[i]->used()));
    }
    for (const auto& region : program_.shared) words_.push_back(base::xxh3(region));
    machine_.digest(words_);
    return base::xxh3(std::as_bytes(std::span(words_)));
  }

  const Program& program_;
  int64_t max_states_;
  Machine machine_;
  std::vector<std::span<std::byte>> saved_;  ///< All that is shared, read or not.
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::byte> initial_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Branch> branches_;
  std::vector<Event> story_;
  std::vector<uint64_t> words_;
  Outcome outcome_;
};

}  // namespace

Outcome explore(const Program& program, int64_t max_states, const Weakening& weakening) {
  return Explorer(program, max_states, weakening).run();
}

}  // namespace hanji::test::model
