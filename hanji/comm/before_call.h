#pragma once

#include <functional>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// Runs `action` on the calling thread just before each call that is submitted to `group`, to any
/// group that came out of it, or to the one that it came out of: a test delays ranks by it, so that
/// they meet in every order.
///
/// Order   before the first call of any of them. `action` must not call them.
/// Cost    a comparison per call where there is none.
void before_call(const Group& group, std::function<void()> action);

}  // namespace hanji::comm
