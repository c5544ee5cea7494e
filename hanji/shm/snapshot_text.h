#pragma once

#include <cstddef>
#include <string>

#include "hanji/shm/hang.h"
#include "hanji/shm/snapshot.h"

namespace hanji::shm {

/// One line per rank and group that the rank is in a call of, or was last: rank, pid, state, group,
/// operation, call, count, dtype, what it does there, since when, call site. Then, per group with
/// an open call, who has arrived and who has delivered. ASCII.
std::string table(const Snapshot& snapshot);

/// The last `count` completed calls of each rank, oldest first, one line each.
std::string list_calls(const Snapshot& snapshot, size_t count);

/// {"verdict": {...}, "ranks": [{..., "groups": [...]}], "groups": [...], "calls": [...]}: the same
/// as verdict, table and list; null for what is not known.
std::string to_json(const Snapshot& snapshot, const HangVerdict& verdict, size_t num_calls);

}  // namespace hanji::shm
