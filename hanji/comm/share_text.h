#pragma once

#include <string>
#include <string_view>

#include "hanji/comm/group.h"

namespace hanji::comm {

/// Rank 0's `text`, on every rank; the others' is ignored. `label` names it in messages.
///
/// Order   every rank of `group` calls it.
/// Errors  throws as broadcast() and Work::wait().
std::string share_text(std::string text, const Group& group, std::string_view label);

}  // namespace hanji::comm
