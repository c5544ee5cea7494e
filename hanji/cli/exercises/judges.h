#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/cli/exercises/judgement.h"
#include "hanji/plan/config.h"

namespace hanji::cli {

// What each check has found out, and what follows from it. Decides from its arguments alone.

/// Exercise 1. Units: bytes per second one way, seconds; 0: not measured.
struct LinkFacts {
  double memory_one = 0;         ///< A copy on one core.
  double memory_all = 0;         ///< Copies on all cores at once, together.
  double between_cores = 0;      ///< A copy of what the farthest core has written.
  double loopback = 0;           ///< A message of 8 MiB through a socket.
  double throttled_seconds = 0;  ///< 4 MiB at 200 Mbit/s: measured anew.
  std::string throttled_by;      ///< "a network namespace", or what stood in.
  bool has_gpu = false;
  std::string gpu_link;      ///< Label of the fastest link of a GPU: "NVLink 4 x18", "PCIe 5 x16".
  double gpu_link_rate = 0;  ///< Nominal.
  double pcie_rate = 0;      ///< Nominal, of the same GPU.
  double gpu_copy = 0;       ///< Measured, from pinned memory of the host.
};
Judgement judge_links(const Answers& answers, const LinkFacts& facts);
/// Bytes and bit rate of the throttled message.
inline constexpr double kThrottledBytes = 4 << 20;
inline constexpr double kThrottledBitsPerSecond = 200e6;

/// Exercise 2: one rank after its steps.
struct AccumulationRank {
  std::vector<double> weights;  ///< Three weights and the bias.
  int64_t calls = 0;            ///< Collectives during the steps.
};
struct AccumulationJob {
  int ranks = 2;
  int steps = 4;
  int micro_batches = 3;  ///< Number for a rank and step.
  int samples = 2;        ///< Number in a micro-batch.
};
/// What becomes of the gradients of a step before the optimizer sees them.
struct GradientFactors {
  double all = 1;        ///< Weight of the mean over all samples.
  double per_later = 1;  ///< Weight of a micro-batch's mean, again for each micro-batch after it.
};
/// The weights of one process that takes each step on all samples at once.
std::vector<double> train_alone(const AccumulationJob& job, const GradientFactors& factors = {});
/// Empty `ranks`: the program printed none.
Judgement judge_accumulation(const AccumulationJob& job,
                             const std::vector<AccumulationRank>& ranks);

/// Exercise 3: the run on four ranks.
struct HybridFacts {
  std::string strategy;  ///< parallel.data
  bool shares_memory = false;
  int ranks = 0;
  int dp = 1, fsdp = 1;
  double parameter_bytes = 0;  ///< Bytes of a group of fsdp ranks, as counted.
  double optimizer_bytes = 0;  ///< The same of moments.
  double wire_bytes = 0;       ///< Bytes of a step, all ranks, as counted.
};
Judgement judge_hybrid(const Answers& answers, const HybridFacts& facts);

/// Exercise 4: two runs.
struct OverheadFacts {
  double step_seconds = 0;
  double exposed_seconds = 0;  ///< Mean over ranks and steps, of the first run.
  double exposed_after = 0;    ///< Figure of the second run.
  std::string engine;          ///< comm.engine of the first run.
  std::vector<std::string> changed_keys;
  plan::Config after;  ///< Configuration of the second run.
};
Judgement judge_overhead(const Answers& answers, const OverheadFacts& facts);

/// Exercise 5: a folder, a file made of it, a run on the file.
struct ImagesFacts {
  int64_t folder_images = 0;
  int64_t folder_classes = 0;
  int64_t file_samples = 0;
  std::vector<std::string>
      file_mistakes;  ///< What verifying found, or why the file cannot be read.
  bool trained_on_file = false;
  std::string trained_on;  ///< data.files, or what else the run has learned.
  int64_t train_samples = 0;
  int64_t global_batch = 1;
  double validation_loss = 0;  ///< Nats.
};
Judgement judge_images(const Answers& answers, const ImagesFacts& facts);

/// Exercise 6: the program as it was, and as it is.
struct HangFacts {
  std::string verdict;  ///< What the engine said of the original at its deadline.
  bool timed_out = false;
  int exit_code = 0;
  std::string last_words;      ///< Last line of the mended program.
  std::vector<double> totals;  ///< Totals that its ranks printed, by rank.
  int ranks = 2;
  double expected_total = 28;  ///< Total of all batches.
};
Judgement judge_hang(const Answers& answers, const HangFacts& facts);

}  // namespace hanji::cli
