#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hanji::layout {

/// How ranks that cut pairs by rows compute a triangle product, whose every element needs a row of both
/// operands: p_ij = sum over k of a_ik b_jk, or of a_ki b_kj.
enum class TriangleWay : uint8_t {
  kGather,    ///< One operand becomes whole on every rank: memory O(N^2), whatever the ranks.
  kRing,      ///< Parts of one operand pass through all ranks.
  kChannels,  ///< Both are cut by channels for the product, of which each channel is one by itself.
  kAuto,      ///< To be decided; a model that is made with it uses channels.
};
inline constexpr std::array<std::string_view, 4> kTriangleWayNames = {"gather", "ring", "channels",
                                                                      "auto"};

}  // namespace hanji::layout
