#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "hanji/comm/group.h"

namespace c10d {
class Backend;
}

namespace hanji::comm::c10d {

/// A group over a c10d backend of the caller, for tensors on the type of `device`.
///
/// Every call first gathers the ranks' descriptions and compares them, as the shared-memory engine
/// does; then runs the backend's own routine, or, for floating sums with Bits::kRun, sends and
/// receives with an ordered local sum. The backend must serve allgather, and what is called.
/// Thread  nobody else may call the backend while the group is used.
Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, c10::Device device,
                 GroupOptions options = {});

}  // namespace hanji::comm::c10d
