#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hanji/test/model/machine.h"

namespace hanji::test::model {

struct Named {
  const void* begin;
  size_t bytes;
  std::string name;
};

/// Threads and the memory that they share, which starts with what it holds now.
struct Program {
  /// Run again and again from any point: what they change lies in `shared`, on their stacks or in
  /// what they allocate themselves. No reference counts of others: hand them unowned pointers.
  std::vector<std::function<void()>> threads;
  std::vector<std::span<std::byte>> shared;
  /// Shared, and written for people only: states that differ there alone are one.
  std::vector<std::span<std::byte>> unread;
  std::vector<std::span<const std::byte>> data;  ///< Machine::treat_as_data().
  std::vector<Named> names;                      ///< For the story of a violation.
  int mortal = -1;                               ///< A thread that may be killed at any point.
};

struct Outcome {
  int64_t num_states = 0;
  int64_t num_transitions = 0;
  int64_t num_ends = 0;   ///< States where every thread has ended or was killed.
  int depth = 0;          ///< Of the longest run.
  bool complete = false;  ///< Every state was seen, and nothing was violated.
  std::string violation;  ///< What, and how it came to it; empty: none found.
};

/// Runs the program in every order of its threads' visible operations and of their stores, each
/// state once. States are compared by their bytes: stacks, allocations, shared memory, buffers and
/// clocks (by a hash of 64 bits).
///
/// Result  a race, a check() that does not hold, an exception or a deadlock ends it, with the steps
///         that lead there.
/// Errors  gives up, not complete, after `max_states`.
Outcome explore(const Program& program, int64_t max_states = 20'000'000,
                const Weakening& weakening = {});

}  // namespace hanji::test::model
