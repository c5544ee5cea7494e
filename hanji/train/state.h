#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/data/vocabulary.h"
#include "hanji/train/dataset.h"
#include "hanji/train/job.h"
#include "hanji/train/observe.h"

namespace hanji::train {

/// What one rank's job holds, its flat tensors cut into pieces; without the gradients.
JobView view_of(const Job& job);
/// With the sum of the gradients of all ranks. Collective.
JobView view_with_gradients(const Job& job);

/// The tensors of a job as checkpoints name them: parameters, then buffers, under their own names; the
/// moments as
/// "exp_avg.NAME" and "exp_avg_sq.NAME", shaped like the parameter, whatever the flat layout; and
/// "step", the number of updates made (a copy). On the CPU: of a job on a GPU all are copies.
struct JobTensors {
  std::vector<checkpoint::TensorEntry> model;
  std::vector<checkpoint::TensorEntry> optimizer;
};
JobTensors tensors_of(const Job& job);

/// SHA-256 of parameters and buffers, and of these and the optimizer's state.
struct JobHashes {
  std::string parameters;
  std::string state;
};
JobHashes hashes_of(const JobTensors& tensors);

/// What a checkpoint must tell beside the tensors: the plan, and how ids become text again.
checkpoint::Manifest describe_state(const plan::Plan& plan, const Dataset& dataset,
                                    int64_t steps_done);

/// Puts a job where a checkpoint left it: parameters, buffers, moments and the number of updates.
/// Result  the steps done. Every rank reads the files by itself.
/// Errors  kMismatch, listing every tensor that differs, for the checkpoint of another model; those
///         of checkpoint::open_checkpoint().
Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint);

/// Puts the tensors of tensors_of() back where they are copies of; nothing on the CPU, where they
/// are the job's own.
void put_back(Job& job, const JobTensors& tensors);

/// The vocabulary that describe_state() wrote; none for a file of token ids.
/// Errors  kCorrupt.
Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest);

}  // namespace hanji::train
