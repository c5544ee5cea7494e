#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/plan/config.h"
#include "hanji/plan/device_spec.h"
#include "hanji/plan/model_facts.h"

namespace hanji::plan {

/// A model of pairs on so many ranks that share out its rows, each as its first rank counts it.
struct PairRanks {
  int ranks = 1;
  ModelFacts channels;  ///< Triangles move by channels,
  ModelFacts gather;  ///< or one operand becomes whole on every rank, as classic schedules have it.
};

/// The same on devices that need not be there.
struct PairCapacity {
  Config config;  ///< Of the model, its residues and sequences; resolved.
  DeviceSpec device;
  int64_t micro_batch = 1;
  std::vector<PairRanks> rows = {};  ///< By ranks, rising.
};

/// What a rank needs.
struct PairNeeds {
  int64_t states = 0;       ///< Parameters, gradients and two moments, whole on every rank.
  int64_t activations = 0;  ///< From forward to backward, and the samples.
  int64_t workspace = 0;    ///< The most that backward holds beside.
  int64_t sent_bytes = 0;   ///< To others, forward and backward.
  double seconds = 0;       ///< At the rates that the device's maker publishes; 0: not known.
  int64_t memory() const { return states + activations + workspace; }
};

/// Of all ranks on one host whose memory they share, if the device is a CPU.
PairNeeds needs_of(const PairCapacity& capacity, const PairRanks& row, TriangleWay way);
bool fits(const PairCapacity& capacity, const PairRanks& row, TriangleWay way);

/// A line for each number of ranks: memory by category, whether it fits, bytes and seconds, and beside it the memory
/// where triangles gather; then the fewest ranks that fit.
std::string describe(const PairCapacity& capacity);
/// The same for programs.
std::string to_json(const PairCapacity& capacity);

}  // namespace hanji::plan
