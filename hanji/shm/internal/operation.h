#pragma once

#include <cstdint>
#include <memory>

#include "hanji/shm/call.h"
#include "hanji/shm/internal/flag_line.h"
#include "hanji/shm/internal/program.h"

namespace hanji::shm::internal {

/// A submitted call and how far it has come. Its place is used again and again; what an equal call
/// found out there is kept.
struct Operation {
  enum class State : uint8_t {
    kFresh,    ///< Nothing done.
    kRunning,  ///< At step `step`, element `element` of `running`.
    kMeeting,  ///< Has posted the sync at `step`, or the opening one, and waits.
  };

  Call call;
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Program> program_if_private;  ///< May be null.
  Descriptor descriptor;
  Words words;  ///< The descriptor's, and the payload.
  /// This rank does nothing but post the syncs of `program`, whatever the others were called with.
  bool only_posts = false;

  const Program* running = nullptr;
  State state = State::kFresh;
  bool opened = false;         ///< The first sync has passed: the ranks agree.
  bool opening_alone = false;  ///< That sync is no step of `running`; it decides which list runs.
  size_t step = 0;
  int64_t element = 0;
  int64_t start_ns = 0;  ///< Only if it is recorded.
  int64_t submitted_ns =
      0;  ///< A time of running_ns(); only if the call has a deadline of its own.
};

}  // namespace hanji::shm::internal
