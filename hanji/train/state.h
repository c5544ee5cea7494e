#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/checkpoint/hash.h"
#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/save.h"
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

/// What of the job's state this rank fills and saves. Of ranks that see the same samples, the first saves.
OwnState own_state(const Job& job);

/// What this rank adds to a checkpoint, read from the job when it is saved: runs of elements of the
/// parameters, under their own names, and of the moments, as "exp_avg.NAME" and "exp_avg_sq.NAME",
/// which are shaped like the parameter, whatever the flat layout. Part 0 adds the buffers and "step",
/// the number of updates made. Nothing on a rank whose part is saved by another.
checkpoint::State state_to_save(const Job& job);

/// Of the parts of all ranks together.
int64_t state_bytes(const Job& job);

/// Of parameters and buffers, and of these and the optimizer's state: as state_hash() of a
/// checkpoint of the job.
/// Cost    on a GPU, memory on the host for the largest tensor.
checkpoint::StateHashes hashes_of(const Job& job);

/// What a checkpoint must tell beside the tensors: the plan, and how ids become text again.
checkpoint::Manifest describe_state(const plan::Plan& plan, const Dataset& dataset,
                                    int64_t steps_done);

/// Puts what this rank fills of a job where a checkpoint left it, whatever plan has saved it; what
/// ranks of a host share is filled when all of them have done so.
///
/// `checkpoint`: one that load_checkpoint() has verified; this reads no more than it fills.
/// Result  the steps done.
/// Errors  kMismatch, listing every tensor that differs, for the checkpoint of another model; those
///         of checkpoint::open_checkpoint().
Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint);

/// The vocabulary that describe_state() wrote; none for a file of token ids.
/// Errors  kCorrupt.
Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest);

}  // namespace hanji::train
