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
  uint64_t shares = 0;  ///< Hash of the counts per rank, or of the grains' owners; 0: even.
  int32_t root = 0;
  uint8_t routine = 0;
  uint8_t op = 0;
  uint8_t dtype = 0;
  std::array<char, 29> way{};     ///< Zero-terminated: what it is carried out by, as say_way().
  std::array<char, 124> where{};  ///< Zero-terminated call site and label; may differ.
};
static_assert(sizeof(Description) == 192);

/// "exchange", "pipeline 16"; empty for the engine's own routine.
std::string say_way(const Choice& choice);

/// Of a call that is carried out in the `way` that say_way() tells; all ranks must tell the same.
Description describe(const Request& request, std::string_view way, uint64_t sequence);

/// Refuses with kMismatch unless all ranks called the same, naming the first rank that differs from
/// the first, both calls and their sites. Every rank sees the same descriptions and says the same.
/// A kSend is a recv on the second.
Status compare(std::span<const Description> ranks, const RankNames& names);

}  // namespace hanji::comm
