#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm {

/// What a rank says about its call before a byte of it moves. Plain bytes between builds that are
/// equal.
struct Description {
  uint64_t sequence = 0;
  uint64_t tag = 0;
  int64_t count = 0;
  uint64_t shares = 0;  ///< Hash of the counts per rank; 0 where they are even.
  int32_t root = 0;
  uint8_t routine = 0;
  uint8_t op = 0;
  uint8_t dtype = 0;
  uint8_t by_steps = 0;
  std::array<char, 152> where{};  ///< Zero-terminated call site and label; may differ.
};
static_assert(sizeof(Description) == 192);

Description describe(const Request& request, const Choice& choice, uint64_t sequence);

/// Refuses with kMismatch unless all ranks called the same, naming the first rank that differs from
/// the first, both calls and their sites. Every rank sees the same descriptions and says the same.
/// `names` are what the ranks are called, if not by number; a kSend is a recv on the second.
Status compare(std::span<const Description> ranks, std::span<const int> names = {});

}  // namespace hanji::comm
