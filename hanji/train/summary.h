#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hanji/checkpoint/saver.h"
#include "hanji/train/dataset.h"
#include "hanji/train/history.h"
#include "hanji/train/loop.h"
#include "hanji/train/state.h"
#include "hanji/train/timings.h"

namespace hanji::train {

/// The measured values of a run on rank 0.
struct Measurement {
  const LoopOutcome& outcome;
  std::string metric_name;  ///< Of outcome.validation_metric; empty: none.
  Timings timings;
  checkpoint::StateHashes hashes;
  double first_step_seconds = 0;    ///< From the start of the command to the end of step 1.
  std::vector<int64_t> peak_bytes;  ///< By rank: private tensors and heap together.
  int64_t gpu_peak_bytes = 0;  ///< The rank's whose tensors had most on its GPU; 0: none had any,
  int64_t gpu_reserved_bytes = 0;  ///< and the most that libtorch's allocator took from one.
  int64_t process_bytes = 0;       ///< Bytes of the rank that had most, before its first tensor,
  int64_t resident_bytes = 0;      ///< and of everything at once.
  std::optional<int64_t> wire_bytes_per_step;  ///< Of all ranks, if the engine counts them.
  int64_t network_bytes_per_step = 0;          ///< Of all ranks, by messages.
  std::vector<int64_t> skew_ns;                ///< Of a step, by rank; -1: not measured.
  std::vector<plan::MemoryLine>
      memory;  ///< Of each category of the plan the most that a rank counted.
  const checkpoint::SaveTimes& saves;  ///< Of rank 0, which writes them.
  int64_t num_failed_saves = 0;
  const History& history;  ///< History of the steps before the resumption.
};

/// The results of a run, as JSON and as text.
struct Summary {
  std::string json;  ///< summary.json: predicted, measured and error of every line of the plan.
  std::string text;  ///< The same table, the losses beside the text's bigram entropy, the speed.
};

/// Compares the run with its plan. Stores its speed in base::cache_folder(), and reports speed-up and
/// efficiency if the speed of the same job on one rank is stored there.
Summary summarise(const plan::Plan& plan, const Dataset& dataset, const Measurement& measured);

}  // namespace hanji::train
