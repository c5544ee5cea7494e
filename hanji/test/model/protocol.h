#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/test/model/explorer.h"

/// The engine of hanji/shm under the explorer: its own code (engine.cpp, runner.cpp,
/// group_lines.cpp, ...), compiled with a modelled memory, clock and futex.
namespace hanji::test::model {

/// How ranks wait once a poll has failed.
enum class Waits {
  kPoll,   ///< All poll.
  kSleep,  ///< All sleep, at once; no nap ends by itself.
  kMixed,  ///< Even ranks sleep, odd ones poll.
};

/// What is wrong in the protocol; found by the explorer, or its tests fail.
enum class Seed {
  kNone,
  kOneLine,          ///< A rank posts all its syncs in one line.
  kFewLines,         ///< A sender posts further ahead than it has lines.
  kOneStagingSet,    ///< Slots are used again one sync early.
  kNoFence,          ///< Neither who posts nor who sleeps makes sure of the order.
  kPostNotReleased,  ///< The sequence may be seen before the words.
  kReadNotAcquired,  ///< The words may be read before the sequence.
  kSleepUnchecked,   ///< A wake may come between the look and the sleep.
  kCountedLate,      ///< The sleeper looks again before others see that it is counted.
};

enum class Routine {
  kBarrier,
  kAllReduceInLine,  ///< 8 bytes in the flag line.
  kAllReduceFlat,    ///< 64 bytes through slots.
  kAllReduceDirect,  ///< In the heap.
  kAllReduceStaged,  ///< Private, in two chunks.
  kBroadcastFlat,    ///< Rank 0 gives; nobody reads the others.
  kAllGatherDirect,
  kSendFlat,  ///< Over a channel, from rank 0 to rank 1.
  kSendDirect,
  kSendStaged,
};

struct Scenario {
  Routine routine = Routine::kBarrier;
  int ranks = 2;
  int calls = 2;
  Waits waits = Waits::kPoll;
  Seed seed = Seed::kNone;
  bool ahead = false;     ///< Each rank submits all its calls before it waits for the first.
  bool mismatch = false;  ///< The last rank's last call has another tag: all must say so.
  bool death = false;     ///< The last rank is killed at any point; a watchdog tells the others.
};

/// "3 ranks, 2 x all_reduce in the line, sleeping".
std::string describe(const Scenario& scenario);

/// Explores the scenario: values, descriptors, races, deadlocks.
Outcome explore(const Scenario& scenario, int64_t max_states = 20'000'000);

/// What `./dev test` goes through in seconds, and what `./dev check` adds.
std::vector<Scenario> small_scenarios();
std::vector<Scenario> large_scenarios();

}  // namespace hanji::test::model
