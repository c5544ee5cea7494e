#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "hanji/comm/c10d/backend.h"

namespace hanji::python {

struct MeetOptions {
  std::string name = "world";           ///< Of the group, said in messages.
  std::chrono::milliseconds timeout{};  ///< Of the meeting and of every call.
  comm::c10d::Meet part{};              ///< Makes the groups that split off this one.
};

/// The backend of one rank among `size` that were given the same store, all on this host. They find
/// each other by a key that rank 0 draws and leaves in the store.
///
/// Order   every rank calls it, as often as the others on one store and prefix.
/// Errors  throws Error: kUnsupported for ranks on several hosts or in several containers, naming
///         them; kTimeout naming the ranks that did not come.
c10::intrusive_ptr<::c10d::Backend> meet(const c10::intrusive_ptr<::c10d::Store>& store, int rank,
                                         int size, const MeetOptions& options);

}  // namespace hanji::python
