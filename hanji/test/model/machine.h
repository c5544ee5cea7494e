#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// A memory that is weaker than any processor's in what it does to stores, and threads that use it.
namespace hanji::test::model {

inline constexpr int kMaxThreads = 6;

/// What a thread knows of the others: how far each had come.
using Clock = std::array<uint32_t, kMaxThreads>;

/// Faults that tests put into the memory, as if the code under it had them.
struct Weakening {
  bool fences_do_nothing = false;
  bool releases_are_relaxed = false;
  bool acquires_are_relaxed = false;
  bool updates_are_late = false;  ///< A relaxed fetch_add lies in the store buffer for a while.
  bool sleeps_unchecked = false;  ///< futex_wait() does not compare.
  /// Bytes that are taken for others: [from, from + bytes) is at `to`.
  struct Alias {
    const void* from;
    size_t bytes;
    const void* to;
  };
  std::vector<Alias> aliases = {};
};

/// What a thread will do when it runs next.
struct Pending {
  enum class Kind : uint8_t {
    kBegin,
    kLoad,
    kStore,    ///< Of a mortal thread, where nobody else looks: it may die before it.
    kUpdate,   ///< Of one word, atomically.
    kFence,    ///< Waits for the thread's own stores.
    kPause,    ///< Polls again: waits until something that it polled has changed.
    kSleep,    ///< futex_wait(): begins to sleep.
    kAsleep,   ///< Until woken.
    kWake,     ///< futex_wake_all().
    kAwaitEnd  ///< Of thread `other`.
  };
  Kind kind = Kind::kBegin;
  bool release = false;
  bool woken = false;  ///< kAsleep.
  int other = -1;      ///< kAwaitEnd.
  uint32_t cell = 0;
};

/// Threads run one at a time, from one visible operation to the next; the explorer says which, and
/// when a store leaves its thread's buffer.
///
/// Atomics  Stores wait in the buffer of their thread until they are committed: in any order, but
///          those to one word in theirs, and a release after all before it. Loads are done in
///          program order. What only one thread touches, or nobody writes, is not visible.
/// Data     Not interleaved: every access must be ordered with every other by what the atomics say
///          (vector clocks, as in C++), else it is a race and a violation. Where there is none, the
///          values do not depend on how data accesses interleave.
class Machine {
 public:
  explicit Machine(Weakening weakening) : weakening_(std::move(weakening)) {}

  // Called by the threads' code, on their fibers.
  uint64_t load(const void* word, size_t bytes, std::memory_order order);
  void store(void* word, size_t bytes, uint64_t value, std::memory_order order);
  /// Gives the value before; `change` says what it becomes, nothing to leave it.
  uint64_t update(void* word, size_t bytes, std::memory_order order,
                  const std::function<std::optional<uint64_t>(uint64_t)>& change);
  void fence();
  void pause();
  void futex_wait(const void* word, uint32_t expected);
  void futex_wake_all(const void* word);
  void note_read(const void* data, size_t bytes);
  void note_write(const void* data, size_t bytes);
  /// Whether it was killed.
  bool await_end(int other);
  void violate(const std::string& what);

  // Called by the explorer.
  struct Entry {
    uint32_t cell;
    bool release;
    uint64_t value;
    Clock clock;
  };
  struct Thread {
    Pending pending;
    bool ended = false;
    bool dead = false;  ///< It was killed; its stores still get out.
    bool polled_changed = false;
    std::vector<Entry> buffer;
    std::vector<uint32_t>
        polled;  ///< Cells loaded since the last pause or visible store, ascending.
    Clock clock{};
    Clock to_acquire{};  ///< Of relaxed loads: known after the next fence.
    Clock fenced{};      ///< Known at the last fence: relaxed stores tell it.
  };
  /// Who touched a piece of data last.
  struct Data {
    int8_t writer = -1;
    uint32_t written = 0;
    Clock reads{};
  };
  /// All that changes in a run, but for the memory itself.
  struct State {
    std::array<Thread, kMaxThreads> threads;
    std::vector<Clock> cells;
    std::vector<Data> data;
  };

  void begin(int num_threads, int mortal);
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }
  int running() const { return running_; }
  void set_running(int thread) { running_ = thread; }
  void set_ended(int thread) { state_.threads[thread].ended = true; }
  /// It does nothing more, and all but `kept` of the stores in its buffer were never done.
  void kill(int thread, size_t kept);
  bool can_run(int thread) const;
  /// Whether entry `index` of the thread's buffer may be committed now.
  bool can_commit(int thread, size_t index) const;
  void commit(int thread, size_t index);
  /// Appends what tells this state from others.
  void digest(std::vector<uint64_t>& words) const;

  const std::string& violation() const { return violation_; }
  /// Cells were found to be shared that were taken for private: what was explored does not count.
  bool take_found_sharing();

  /// Words of [begin, begin + bytes) are data, even where they are atomics: they must be ordered.
  void treat_as_data(const void* begin, size_t bytes) { data_ranges_.push_back({begin, bytes}); }
  /// Nobody loads from there; who does is a violation.
  void treat_as_unread(const void* begin, size_t bytes) { unread_.push_back({begin, bytes}); }
  void set_name(const void* begin, size_t bytes, std::string name) {
    names_.push_back({begin, bytes, std::move(name)});
  }
  std::string name_of_cell(uint32_t cell) const { return name_of(cells_[cell].word); }
  uint64_t committed_value(uint32_t cell) const;

 private:
  struct Cell {
    void* word;
    size_t bytes;
    uint8_t readers = 0, writers = 0;  ///< A bit per thread.
  };
  struct Range {
    const void* begin;
    size_t bytes;
  };
  static bool lies_in(const std::vector<Range>& ranges, const void* address);
  struct Name {
    const void* begin;
    size_t bytes;
    std::string name;
  };

  Thread& me() { return state_.threads[running_]; }
  void* translate(const void* address) const;
  uint32_t cell_of(void* word, size_t bytes);
  void touch(uint32_t cell, bool writes);
  bool others(uint8_t threads) const { return (threads & ~(1u << running_)) != 0; }
  void give_way(Pending pending);
  void forget_polls();
  void learn(const Clock& clock, std::memory_order order);
  Clock told(std::memory_order order);
  void put(uint32_t cell, uint64_t value, const Clock& clock, int by);
  template <class F>
  void for_each_piece(const void* data, size_t bytes, F&& visit);
  std::string name_of(const void* address) const;

  Weakening weakening_;
  State state_;
  int num_threads_ = 0;
  int mortal_ = -1;
  int running_ = 0;
  std::vector<Cell> cells_;
  std::map<const void*, uint32_t> cell_index_;
  std::map<const void*, uint32_t> data_index_;
  std::vector<const void*> data_address_;
  std::vector<Range> data_ranges_, unread_;
  std::vector<Name> names_;
  bool found_sharing_ = false;
  std::string violation_;
};

/// Clears what calls have left on the stack below the caller: it would tell equal states apart.
void scrub_stack();

/// The machine that the code under test runs on now; null outside of explorations.
Machine*& current_machine();
/// The same, to be asked to do something.
inline Machine* ready_machine() {
  Machine* machine = current_machine();
  if (machine != nullptr) scrub_stack();
  return machine;
}

}  // namespace hanji::test::model
