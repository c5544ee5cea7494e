#include <array>
#include <stdexcept>

#include "hanji/test/model/machine.h"

namespace hanji::test::model {
namespace {

/// Times of a thread are only compared with each other, and the next one is later than all: so in a
/// digest they are counted anew, and states that differ in how often a thread looked are one.
class Times {
 public:
  void add(const Clock& clock) {
    for (size_t thread = 0; thread < clock.size(); ++thread) add(thread, clock[thread]);
  }
  void add(size_t thread, uint32_t time) {
    if (time >= kLimit) throw std::length_error("a modelled thread does too much");
    if (time != 0) places_[thread][time] = 1;
  }
  /// After all were added.
  void count() {
    for (auto& places : places_) {
      uint16_t place = 0;
      for (uint16_t& time : places) time = time != 0 ? ++place : 0;
    }
  }
  uint64_t of(size_t thread, uint32_t time) const { return time == 0 ? 0 : places_[thread][time]; }
  void append(std::vector<uint64_t>& words, const Clock& clock) const {
    for (size_t thread = 0; thread < clock.size(); ++thread) {
      words.push_back(of(thread, clock[thread]));
    }
  }

 private:
  static constexpr uint32_t kLimit = 4096;
  std::array<std::array<uint16_t, kLimit>, kMaxThreads> places_{};
};

}  // namespace

void Machine::digest(std::vector<uint64_t>& words) const {
  Times times;
  for (int i = 0; i < num_threads_; ++i) {
    const Thread& thread = state_.threads[i];
    for (const Clock& clock : {thread.clock, thread.to_acquire, thread.fenced}) times.add(clock);
    for (const Entry& entry : thread.buffer) times.add(entry.clock);
  }
  for (const Clock& clock : state_.cells) times.add(clock);
  for (const Data& data : state_.data) {
    times.add(data.reads);
    if (data.writer >= 0) times.add(static_cast<size_t>(data.writer), data.written);
  }
  times.count();
  for (int i = 0; i < num_threads_; ++i) {
    const Thread& thread = state_.threads[i];
    const Pending& pending = thread.pending;
    words.push_back(static_cast<uint64_t>(pending.kind) | uint64_t{pending.release} << 8 |
                    uint64_t{pending.woken} << 9 | uint64_t{thread.ended} << 10 |
                    uint64_t{thread.dead} << 11 | uint64_t{thread.polled_changed} << 12 |
                    static_cast<uint64_t>(pending.other + 1) << 16 | uint64_t{pending.cell} << 32);
    words.push_back(thread.buffer.size() | thread.polled.size() << 32);
    for (const Entry& entry : thread.buffer) {
      words.insert(words.end(), {entry.cell | uint64_t{entry.release} << 32, entry.value});
      times.append(words, entry.clock);
    }
    words.insert(words.end(), thread.polled.begin(), thread.polled.end());
    for (const Clock& clock : {thread.clock, thread.to_acquire, thread.fenced}) {
      times.append(words, clock);
    }
  }
  for (size_t i = 0; i < state_.cells.size(); ++i) {
    if (state_.cells[i] == Clock{}) continue;
    words.push_back(i);
    times.append(words, state_.cells[i]);
  }
  for (size_t i = 0; i < state_.data.size(); ++i) {
    const Data& data = state_.data[i];
    if (data.writer < 0 && data.reads == Clock{}) continue;
    const uint64_t written =
        data.writer < 0 ? 0 : times.of(static_cast<size_t>(data.writer), data.written);
    words.insert(words.end(), {i, static_cast<uint64_t>(data.writer + 1) << 32 | written});
    times.append(words, data.reads);
  }
}

}  // namespace hanji::test::model
