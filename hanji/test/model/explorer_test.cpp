// The explorer finds what is known to be wrong, and passes what is known to be right.
#include "hanji/test/model/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "hanji/test/model/memory.h"

namespace hanji::test::model {
namespace {

using testing::HasSubstr;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

struct Words {
  Atomic<uint32_t> a, b, turn;
  uint32_t data = 0;
  uint32_t result[2] = {0, 0};
};

class Explored : public testing::Test {
 protected:
  Outcome run(std::vector<std::function<void()>> threads, const Weakening& weakening = {}) {
    Program program;
    program.threads = std::move(threads);
    program.shared = {std::as_writable_bytes(std::span(&words_, 1))};
    program.names = {{&words_.a, 4, "a"}, {&words_.b, 4, "b"}, {&words_.data, 4, "data"}};
    return explore(program, 1'000'000, weakening);
  }

  Words words_;
};

/// Each thread stores one word and loads the other's; without a fence both may see nothing.
class StoreBuffering : public Explored {
 protected:
  Outcome run_with(bool fences, const Weakening& weakening = {}) {
    const auto thread = [this, fences](int me, Atomic<uint32_t>& mine, Atomic<uint32_t>& other) {
      mine.store(1, kRelease);
      if (fences) full_fence();
      words_.result[me] = other.load(kAcquire);
      words_.turn.fetch_add(1);
      while (words_.turn.load(kAcquire) != 2) pause();
      check(words_.result[0] + words_.result[1] > 0, "neither sees the other");
    };
    return run({[=, this] { thread(0, words_.a, words_.b); },
                [=, this] { thread(1, words_.b, words_.a); }},
               weakening);
  }
};

TEST_F(StoreBuffering, IsSeenWithoutAFence) {
  EXPECT_THAT(run_with(false).violation, HasSubstr("neither sees the other"));
}

TEST_F(StoreBuffering, IsForbiddenByAFence) {
  const Outcome outcome = run_with(true);
  EXPECT_TRUE(outcome.complete) << outcome.violation;
  EXPECT_GT(outcome.num_ends, 0);
}

TEST_F(StoreBuffering, IsSeenAgainWhereFencesAreTakenAway) {
  EXPECT_NE(run_with(true, {.fences_do_nothing = true}).violation, "");
}

class MessagePassing : public Explored {
 protected:
  Outcome run_with(std::memory_order store, std::memory_order load,
                   const Weakening& weakening = {}) {
    return run({[=, this] {
                  note_write(&words_.data, 4);
                  words_.data = 7;
                  words_.a.store(1, store);
                },
                [=, this] {
                  while (words_.a.load(load) == 0) pause();
                  note_read(&words_.data, 4);
                  check(words_.data == 7, "an old value");
                }},
               weakening);
  }
};

TEST_F(MessagePassing, IsOrderedByReleaseAndAcquire) {
  EXPECT_TRUE(run_with(kRelease, kAcquire).complete);
}

TEST_F(MessagePassing, IsARaceWhereEitherIsMissing) {
  EXPECT_THAT(run_with(kRelaxed, kAcquire).violation, HasSubstr("reads data while rank 0 writes"));
  EXPECT_THAT(run_with(kRelease, kRelaxed).violation, HasSubstr("reads data"));
  EXPECT_NE(run_with(kRelease, kAcquire, {.releases_are_relaxed = true}).violation, "");
  EXPECT_NE(run_with(kRelease, kAcquire, {.acquires_are_relaxed = true}).violation, "");
}

TEST_F(MessagePassing, RelaxedStoresAreSeenInAnyOrder) {
  const auto writer = [this](std::memory_order order) {
    words_.a.store(1, kRelaxed);
    words_.b.store(1, order);
  };
  const auto reader = [this] {
    while (words_.b.load(kAcquire) == 0) pause();
    check(words_.a.load(kRelaxed) == 1, "the second came first");
  };
  EXPECT_NE(run({[=] { writer(kRelaxed); }, reader}).violation, "");
  EXPECT_TRUE(run({[=] { writer(kRelease); }, reader}).complete);
}

TEST_F(Explored, ALostUpdateIsFound) {
  const auto add_apart = [this] { words_.a.store(words_.a.load() + 1); };
  const auto add = [this] { words_.a.fetch_add(1); };
  const auto look = [this] {
    await_end(0);
    await_end(1);
    check(words_.a.load() == 2, "an update was lost");
  };
  EXPECT_THAT(run({add_apart, add_apart, look}).violation, HasSubstr("an update was lost"));
  EXPECT_TRUE(run({add, add, look}).complete);
}

/// A sleeper counts itself and looks again; a waker changes the word and wakes who is counted.
class Sleep : public Explored {
 protected:
  Outcome run_with(bool counts_first, const Weakening& weakening = {}) {
    const auto sleeper = [=, this] {
      while (words_.a.load(kAcquire) == 0) {
        const uint32_t rings = words_.turn.load(kAcquire);
        const bool early = !counts_first && words_.a.load(kAcquire) == 0;
        words_.b.fetch_add(1, kRelaxed);
        full_fence();
        if (early || words_.a.load(kAcquire) == 0) futex_wait(&words_.turn, rings);
        words_.b.fetch_sub(1, kRelaxed);
      }
    };
    const auto waker = [this] {
      words_.a.store(1, kRelease);
      full_fence();
      if (words_.b.load(kRelaxed) == 0) return;
      words_.turn.fetch_add(1, kRelease);
      futex_wake_all(&words_.turn);
    };
    return run({sleeper, waker}, weakening);
  }
};

TEST_F(Sleep, IsAlwaysWokenWhereItCountsFirst) {
  const Outcome outcome = run_with(true);
  EXPECT_TRUE(outcome.complete) << outcome.violation;
}

TEST_F(Sleep, IsLostInEveryOtherWay) {
  for (const Outcome& outcome : {run_with(false), run_with(true, {.fences_do_nothing = true}),
                                 run_with(true, {.sleeps_unchecked = true})}) {
    EXPECT_THAT(outcome.violation, HasSubstr("nobody can go on: thread 0 sleeps on"));
  }
}

TEST_F(Explored, ADeathIsTriedAtEveryPoint) {
  Program program;
  program.threads = {[this] {
                       words_.a.store(1, kRelease);
                       words_.b.store(1, kRelease);
                     },
                     [this] {
                       if (!await_end(0)) return;
                       full_fence();
                       const uint32_t b = words_.b.load(kAcquire);
                       const uint32_t a = words_.a.load(kAcquire);
                       check(a >= b, "the second store without the first");
                       check(a == b, "between the two");
                     }};
  program.shared = {std::as_writable_bytes(std::span(&words_, 1))};
  program.mortal = 0;
  EXPECT_THAT(explore(program).violation, HasSubstr("between the two"));
}

TEST_F(Explored, StatesAreCountedOnceWhateverWayLeadsThere) {
  // Two threads with k visible updates each meet in (k+1)^2 states, plus their ends.
  const auto thread = [this] {
    for (int i = 0; i < 5; ++i) words_.a.fetch_add(1, kRelaxed);
  };
  const Outcome outcome = run({thread, thread});
  EXPECT_TRUE(outcome.complete);
  EXPECT_EQ(outcome.num_states, 36);
  EXPECT_EQ(outcome.num_ends, 1);
}

TEST_F(Explored, AnExceptionIsAViolation) {
  EXPECT_THAT(run({[] { throw std::runtime_error("page 7"); }}).violation, HasSubstr("page 7"));
}

TEST_F(Explored, GivesUpAtTheLimit) {
  Program program;
  const auto thread = [this] {
    for (int i = 0; i < 50; ++i) words_.a.fetch_add(1, kRelaxed);
  };
  program.threads = {thread, thread};
  program.shared = {std::as_writable_bytes(std::span(&words_, 1))};
  const Outcome outcome = explore(program, 100);
  EXPECT_FALSE(outcome.complete);
  EXPECT_EQ(outcome.violation, "");
}

}  // namespace
}  // namespace hanji::test::model
