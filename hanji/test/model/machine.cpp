#include "hanji/test/model/machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hanji/test/model/arena.h"
#include "hanji/test/model/fiber.h"

namespace hanji::test::model {
namespace {

using Kind = Pending::Kind;

constexpr size_t kPiece = 4;  // bytes of data that are watched as one

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

void join(Clock& mine, const Clock& theirs) {
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
}

uint64_t read_word(const void* word, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, word, bytes);
  return value;
}

/// The machine's own memory comes from the C library, whichever thread runs.
class OutsideOfArenas {
 public:
  OutsideOfArenas() : before_(Arena::use(nullptr)) {}
  ~OutsideOfArenas() { Arena::use(before_); }

 private:
  Arena* before_;
};

}  // namespace

Machine*& current_machine() {
  static Machine* machine = nullptr;
  return machine;
}

[[gnu::noinline]] void scrub_stack() {
  std::array<std::byte, 4096> area;
  std::memset(area.data(), 0, area.size());
  asm volatile("" : : "r"(area.data()) : "memory");
}

void Machine::begin(int num_threads, int mortal) {
  num_threads_ = num_threads;
  mortal_ = mortal;
  state_ = {};
  for (int thread = 0; thread < num_threads; ++thread) {
    state_.threads[thread].clock[thread] = 1;
  }
  found_sharing_ = false;
}

void* Machine::translate(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  for (const auto& alias : weakening_.aliases) {
    const auto* from = static_cast<const std::byte*>(alias.from);
    if (byte < from || byte >= from + alias.bytes) continue;
    byte = static_cast<const std::byte*>(alias.to) + (byte - from);
    break;
  }
  return const_cast<std::byte*>(byte);
}

bool Machine::lies_in(const std::vector<Range>& ranges, const void* address) {
  return std::ranges::any_of(ranges, [&](const Range& range) {
    return address >= range.begin &&
           address < static_cast<const std::byte*>(range.begin) + range.bytes;
  });
}

std::string Machine::name_of(const void* address) const {
  for (const Name& name : names_) {
    const auto* begin = static_cast<const std::byte*>(name.begin);
    const auto* byte = static_cast<const std::byte*>(address);
    if (byte < begin || byte >= begin + name.bytes) continue;
    return name.name + (byte == begin ? "" : "+" + std::to_string(byte - begin));
  }
  return "a word";
}

uint32_t Machine::cell_of(void* word, size_t bytes) {
  const auto [found, added] = cell_index_.try_emplace(word, static_cast<uint32_t>(cells_.size()));
  if (added) cells_.push_back({word, bytes});
  if (state_.cells.size() < cells_.size()) state_.cells.resize(cells_.size());
  return found->second;
}

// A word is private or constant until shown otherwise; then all starts again with what is known.
void Machine::touch(uint32_t index, bool writes) {
  Cell& cell = cells_[index];
  uint8_t& threads = writes ? cell.writers : cell.readers;
  const auto bit = static_cast<uint8_t>(1u << running_);
  if ((threads & bit) != 0) return;
  threads |= bit;
  const auto all = static_cast<uint8_t>(cell.readers | cell.writers);
  if (cell.writers != 0 && (all & (all - 1)) != 0) found_sharing_ = true;
}

bool Machine::take_found_sharing() { return std::exchange(found_sharing_, false); }

void Machine::give_way(Pending pending) {
  me().pending = pending;
  Fiber::give_way();
}

// A loop of polls begins after whatever the thread did for others to see.
void Machine::forget_polls() {
  me().polled.clear();
  me().polled_changed = false;
}

void Machine::violate(const std::string& what) {
  {
    const OutsideOfArenas outside;
    if (violation_.empty()) violation_ = what;
  }
  Fiber::give_way();  // and is never resumed
}

void Machine::learn(const Clock& clock, std::memory_order order) {
  join(acquires(order) && !weakening_.acquires_are_relaxed ? me().clock : me().to_acquire, clock);
}

/// What a store with this order tells.
Clock Machine::told(std::memory_order order) {
  if (!releases(order) || weakening_.releases_are_relaxed) return me().fenced;
  const Clock clock = me().clock;
  ++me().clock[running_];
  return clock;
}

uint64_t Machine::load(const void* address, size_t bytes, std::memory_order order) {
  const OutsideOfArenas outside;
  void* word = translate(address);
  if (lies_in(data_ranges_, address)) {
    note_read(address, bytes);
    return read_word(word, bytes);
  }
  if (lies_in(unread_, address))
    violate("rank " + std::to_string(running_) + " reads what nobody reads");
  const uint32_t cell = cell_of(word, bytes);
  touch(cell, false);
  if (others(cells_[cell].writers)) give_way({.kind = Kind::kLoad, .cell = cell});
  for (auto entry = me().buffer.rbegin(); entry != me().buffer.rend(); ++entry) {
    if (entry->cell == cell) return entry->value;
  }
  auto& polled = me().polled;
  const auto at = std::ranges::lower_bound(polled, cell);
  if (at == polled.end() || *at != cell) polled.insert(at, cell);
  learn(state_.cells[cell], order);
  return read_word(word, bytes);
}

void Machine::store(void* address, size_t bytes, uint64_t value, std::memory_order order) {
  const OutsideOfArenas outside;
  void* word = translate(address);
  if (lies_in(data_ranges_, address)) {
    note_write(address, bytes);
    std::memcpy(word, &value, bytes);
    return;
  }
  const uint32_t cell = cell_of(word, bytes);
  touch(cell, true);
  const bool shared = others(cells_[cell].readers | cells_[cell].writers);
  const bool release = releases(order) && !weakening_.releases_are_relaxed;
  if (!shared && running_ == mortal_) give_way({.kind = Kind::kStore, .cell = cell});
  const Clock clock = told(order);
  if (shared) {
    me().buffer.push_back({cell, release, value, clock});
    forget_polls();
  } else {
    put(cell, value, clock, running_);
  }
  if (order == std::memory_order_seq_cst) fence();
}

uint64_t Machine::update(void* address, size_t bytes, std::memory_order order,
                         const std::function<std::optional<uint64_t>(uint64_t)>& change) {
  const OutsideOfArenas outside;
  const uint32_t cell = cell_of(translate(address), bytes);
  touch(cell, true);
  const bool shared = others(cells_[cell].readers | cells_[cell].writers);
  const bool release = releases(order) && !weakening_.releases_are_relaxed;
  if (shared) {
    give_way({.kind = Kind::kUpdate, .release = release, .cell = cell});
    forget_polls();
  }
  const uint64_t old = read_word(cells_[cell].word, bytes);
  const auto changed = change(old);
  learn(state_.cells[cell], order);
  if (!changed) return old;
  Clock clock = told(order);
  if (weakening_.updates_are_late && order == std::memory_order_relaxed && shared) {
    me().buffer.push_back({cell, false, *changed, clock});
    return old;
  }
  join(clock, state_.cells[cell]);  // an update goes on with the release that it read
  put(cell, *changed, clock, running_);
  if (order == std::memory_order_seq_cst) fence();
  return old;
}

void Machine::put(uint32_t cell, uint64_t value, const Clock& clock, int by) {
  std::memcpy(cells_[cell].word, &value, cells_[cell].bytes);
  state_.cells[cell] = clock;
  for (int thread = 0; thread < num_threads_; ++thread) {
    Thread& other = state_.threads[thread];
    if (thread != by && std::ranges::binary_search(other.polled, cell)) other.polled_changed = true;
  }
}

void Machine::fence() {
  const OutsideOfArenas outside;
  if (weakening_.fences_do_nothing) return;
  if (!me().buffer.empty()) give_way({.kind = Kind::kFence});
  join(me().clock, me().to_acquire);
  me().to_acquire = {};
  me().fenced = me().clock;
  ++me().clock[running_];
}

void Machine::pause() {
  const OutsideOfArenas outside;
  give_way({.kind = Kind::kPause});
  forget_polls();
}

void Machine::futex_wait(const void* address, uint32_t expected) {
  const OutsideOfArenas outside;
  const uint32_t cell = cell_of(translate(address), sizeof expected);
  touch(cell, false);
  give_way({.kind = Kind::kSleep, .cell = cell});
  if (read_word(cells_[cell].word, 4) != expected && !weakening_.sleeps_unchecked) return;
  give_way({.kind = Kind::kAsleep, .cell = cell});
  forget_polls();
}

void Machine::futex_wake_all(const void* address) {
  const OutsideOfArenas outside;
  const uint32_t cell = cell_of(translate(address), 4);
  touch(cell, false);
  give_way({.kind = Kind::kWake, .cell = cell});
  for (int thread = 0; thread < num_threads_; ++thread) {
    Pending& pending = state_.threads[thread].pending;
    if (pending.kind == Kind::kAsleep && pending.cell == cell) pending.woken = true;
  }
}

bool Machine::await_end(int other) {
  const OutsideOfArenas outside;
  give_way({.kind = Kind::kAwaitEnd, .other = other});
  return state_.threads[other].dead;
}

template <class F>
void Machine::for_each_piece(const void* data, size_t bytes, F&& visit) {
  const auto first = reinterpret_cast<uintptr_t>(data) / kPiece * kPiece;
  for (uintptr_t at = first; at < reinterpret_cast<uintptr_t>(data) + bytes; at += kPiece) {
    const void* piece = translate(reinterpret_cast<const void*>(at));
    const auto next = static_cast<uint32_t>(data_address_.size());
    const auto [found, added] = data_index_.try_emplace(piece, next);
    if (added) data_address_.push_back(piece);
    if (state_.data.size() <= found->second) state_.data.resize(found->second + 1);
    visit(state_.data[found->second], piece);
  }
}

void Machine::note_read(const void* data, size_t bytes) {
  const OutsideOfArenas outside;
  for_each_piece(data, bytes, [&](Data& piece, const void* at) {
    if (piece.writer >= 0 && piece.writer != running_ && piece.written > me().clock[piece.writer]) {
      violate("rank " + std::to_string(running_) + " reads " + name_of(at) + " while rank " +
              std::to_string(piece.writer) + " writes it");
    }
    piece.reads[running_] = me().clock[running_];
  });
}

void Machine::note_write(const void* data, size_t bytes) {
  const OutsideOfArenas outside;
  for_each_piece(data, bytes, [&](Data& piece, const void* at) {
    for (int other = 0; other < num_threads_; ++other) {
      if (other == running_) continue;
      const bool written = piece.writer == other && piece.written > me().clock[other];
      if (!written && piece.reads[other] <= me().clock[other]) continue;
      violate("rank " + std::to_string(running_) + " writes " + name_of(at) + " while rank " +
              std::to_string(other) + (written ? " writes it" : " reads it"));
    }
    piece = {};
    piece.writer = static_cast<int8_t>(running_);
    piece.written = me().clock[running_];
  });
}

bool Machine::can_run(int index) const {
  const Thread& thread = state_.threads[index];
  if (thread.ended || thread.dead) return false;
  const Pending& pending = thread.pending;
  switch (pending.kind) {
    case Kind::kFence: return thread.buffer.empty();
    case Kind::kPause: return thread.polled_changed;
    case Kind::kAsleep: return pending.woken;
    case Kind::kAwaitEnd:
      return state_.threads[pending.other].ended || state_.threads[pending.other].dead;
    case Kind::kUpdate:
      if (pending.release) return thread.buffer.empty();
      return std::ranges::none_of(thread.buffer,
                                  [&](const Entry& entry) { return entry.cell == pending.cell; });
    default: return true;
  }
}

void Machine::kill(int index, size_t kept) {
  Thread& thread = state_.threads[index];
  thread.dead = true;
  thread.buffer.resize(kept);
}

bool Machine::can_commit(int thread, size_t index) const {
  const auto& buffer = state_.threads[thread].buffer;
  if (buffer[index].release && index != 0) return false;
  return std::none_of(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(index),
                      [&](const Entry& entry) { return entry.cell == buffer[index].cell; });
}

void Machine::commit(int thread, size_t index) {
  auto& buffer = state_.threads[thread].buffer;
  const Entry entry = buffer[index];
  buffer.erase(buffer.begin() + static_cast<ptrdiff_t>(index));
  put(entry.cell, entry.value, entry.clock, thread);
}

uint64_t Machine::committed_value(uint32_t cell) const {
  return read_word(cells_[cell].word, cells_[cell].bytes);
}

}  // namespace hanji::test::model
