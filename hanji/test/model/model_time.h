#pragma once

#include <cstdint>

namespace hanji::test::model {

/// Whether the running thread sleeps as soon as a poll has failed, because its time runs; that of
/// one that polls for ever stands still.
bool sleeps_at_once();
/// The running thread's time; from its second look on the end of its patience, if it sleeps.
int64_t next_time();

}  // namespace hanji::test::model
