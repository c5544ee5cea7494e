#pragma once

#include <cstdint>
#include <string>

namespace hanji::shm {

inline constexpr int kTagBits = 32;  ///< Bits of the number within a maker's tags.

/// The first tag of maker `maker`, to which the maker adds a number of its own below 2^32. Ranks that
/// count makers alike match no call of one maker with a call of another, whatever their shapes.
constexpr uint64_t first_tag(uint64_t maker) { return maker << kTagBits; }

/// The number that the maker added.
constexpr uint64_t number_in(uint64_t tag) { return tag - first_tag(tag >> kTagBits); }

/// "3", or "5/3": number 3 of maker 5.
inline std::string say_tag(uint64_t tag) {
  const uint64_t maker = tag >> kTagBits;
  const std::string number = std::to_string(number_in(tag));
  return maker == 0 ? number : std::to_string(maker) + "/" + number;
}

}  // namespace hanji::shm
