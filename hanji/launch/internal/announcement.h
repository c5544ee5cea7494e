#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::launch {

/// What HANJI_ENDPOINTS tells a rank: who it is, and the numbers of the descriptors it inherits.
struct Announcement {
  int rank = 0;
  int size = 1;
  int segment = -1;
  int control = -1;
  int plan = -1;         ///< -1: there is no plan.
  int same_program = 0;  ///< 1: the launcher is the same program, so build ids must agree.
};

/// "rank=1,size=4,segment=5,control=9,plan=6,same_program=0".
std::string to_text(const Announcement& announcement);

/// Errors  kInvalidArgument for anything that to_text() does not write.
Result<Announcement> parse_announcement(std::string_view text);

/// A whole decimal integer, or nothing.
std::optional<int> parse_integer(std::string_view text);

}  // namespace hanji::launch
