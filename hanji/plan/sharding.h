#pragma once

#include <array>
#include <cstdint>

#include "hanji/plan/choices.h"

namespace hanji::plan {

inline constexpr std::array kShardings = {Sharding::kReplicas, Sharding::kServer,
                                          Sharding::kZero1,    Sharding::kZero2,
                                          Sharding::kZero3,    Sharding::kHybrid};

/// Bytes of one parameter and of what training keeps for it.
struct StateWidths {
  int64_t parameter = 2;
  int64_t gradient = 2;
  int64_t optimizer = 12;  ///< Mixed Adam: fp32 copy and two moments.
  int64_t sum() const { return parameter + gradient + optimizer; }
  bool operator==(const StateWidths&) const = default;
};
inline constexpr StateWidths kMixedAdam = {2, 2, 12};
inline constexpr StateWidths kFloat32Adam = {4, 4, 8};

/// Who shares with whom.
struct ShardRanks {
  int ranks = 1;         ///< That see samples; of a server strategy the workers.
  int hybrid_ranks = 1;  ///< Of a group within which kHybrid shards; divides `ranks`.
  int servers = 1;       ///< Of kServer, beside the workers.
};

/// Bytes of the states of one rank; fractions of a byte are those of an even cut.
struct StateBytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double sum() const { return parameters + gradients + optimizer; }
};

/// States alone: no activations, no buffers.
///
/// Result  with P parameters of p, g and o bytes on N ranks: ddp (p+g+o)P; zero1 (p+g)P + oP/N;
///         zero2 pP + (g+o)P/N; zero3 (p+g+o)P/N; hsdp the same with the ranks of a group for N;
///         server (p+g)P on a worker.
/// Source  Rajbhandari et al., ZeRO, SC20, section 5 and table 1.
StateBytes state_bytes(Sharding sharding, double num_parameters, const StateWidths& widths,
                       const ShardRanks& ranks);

/// Of one of the servers: parameters, gradients that arrive, and optimizer of its share.
StateBytes server_bytes(double num_parameters, const StateWidths& widths, const ShardRanks& ranks);

/// Bytes that a rank sends in a step, with the least that moves: 2 parameters' worth for ddp,
/// server, zero1 and zero2, 3 for zero3, and for hsdp 3 within the group and 2/F across.
/// Source  ZeRO, section 7.
double sent_bytes(Sharding sharding, double num_parameters, const StateWidths& widths,
                  const ShardRanks& ranks);

}  // namespace hanji::plan
