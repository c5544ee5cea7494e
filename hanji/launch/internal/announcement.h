#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::launch {

/// What HANJI_ENDPOINTS tells a rank: who it is, and the numbers of the descriptors it inherits.
struct Announcement {
  int rank = 0;  ///< On this host.
  int size = 1;
  int segment = -1;
  int control = -1;
  int plan = -1;         ///< -1: there is no plan.
  int same_program = 0;  ///< 1: the launcher is the same program, so build ids must agree.
  int hosts = -1;        ///< -1: there is no other host.
  int first_rank = 0;    ///< Of this host among all ranks.
  int world_size = 1;
  int node = 0;
  int num_nodes = 1;
};

/// "rank=1,size=4,segment=5,control=9,plan=6,same_program=0", and on several hosts behind it
/// ",hosts=7,first_rank=4,world_size=8,node=1,num_nodes=2".
std::string to_text(const Announcement& announcement);

/// Errors  kInvalidArgument for anything that to_text() does not write.
Result<Announcement> parse_announcement(std::string_view text);

/// A whole decimal integer, or nothing.
std::optional<int> parse_integer(std::string_view text);

}  // namespace hanji::launch
