#pragma once

#include <array>
#include <span>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/comm/internal/description.h"

namespace hanji::comm::hierarchical {

/// What a rank tells before a byte of a call moves: first to the ranks of its host, then to its
/// rail peers, with the verdict of its host. Plain bytes between builds that are equal.
struct Frame {
  Description call;
  int32_t rank = 0;                  ///< Of the whole group.
  int32_t code = 0;                  ///< Of the verdict; Code::kOk: go on.
  std::array<char, 1024> verdict{};  ///< Zero-terminated.
};
static_assert(sizeof(Frame) == 1224);

/// What the rank says of its call, the `sequence`-th; `way` as in describe().
Frame make_frame(const Request& request, std::string_view way, uint64_t sequence, int rank);
void set_verdict(Frame& frame, const Status& status);

/// The first verdict that is told, else what a comparison of the calls finds. `names` of the whole group.
Status judge(std::span<const Frame> frames, const RankNames& names);

}  // namespace hanji::comm::hierarchical
