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

/// The tensors of one rank's job, flat tensors split by parameter; without the gradients.
JobView view_of(const Job& job);
/// The same of all ranks that share out the layers: tensors of other stages have no memory here.
JobView view_of_stages(const Job& job);
/// With the sum of the gradients of all ranks. Collective.
JobView view_with_gradients(const Job& job);

/// The whole of a tensor of the job's state: put together from the shards that ranks hold, from the parts
/// of the ranks that cut it, or of view_of_stages() from the rank whose stage has it.
///
/// Order   collective over Strategy::sharers() for a tensor that is held in shards, over `job.cut` for
///         one that is cut, and over `job.stages`; local for any other, which is not copied.
/// Cost    memory for the whole tensor, twice.
at::Tensor whole_of(const StateTensor& one, const Job& job);

/// The ranges of the job's state that this rank restores and saves. Of ranks with the same samples, the
/// first one saves, or the first one of each part if an axis cuts the parameters.
OwnState own_state(const Job& job);

/// This rank's part of a checkpoint, read from the job when it is saved: ranges of the parameters,
/// under their own names, and of the moments, as "exp_avg.NAME" and "exp_avg_sq.NAME", which have the
/// shape of the parameter for any flat layout. Shapes and ranges are those of whole tensors, also if an
/// axis cuts the parameters; tensors that it does not cut are saved by its first rank. Part 0 adds the
/// buffers and "step", the number of updates. Empty on a rank whose part another rank saves.
checkpoint::State state_to_save(const Job& job);

/// All ranks' parts together.
checkpoint::SaveSize size_of_state(const Job& job);

/// Hashes of parameters and buffers, and of these and the optimizer's state; equal to state_hash() of
/// a checkpoint of the job.
/// Order   collective over Strategy::sharers(), `job.cut` or `job.stages` if there is one, tensor by
///         tensor; local otherwise.
/// Cost    on a GPU, memory on the host for the largest tensor.
checkpoint::StateHashes hashes_of(const Job& job);

/// The manifest of a checkpoint: the plan, and the vocabulary.
checkpoint::Manifest describe_state(const plan::Plan& plan, const Dataset& dataset,
                                    int64_t steps_done);

/// Restores this rank's part of a job from a checkpoint, which any plan may have saved. State that the
/// ranks of a host share is complete after all of them have returned.
///
/// `checkpoint`: verified by load_checkpoint(); only the restored ranges are read.
/// Cost    on a GPU, memory on the host for the largest tensor.
/// Result  the steps done.
/// Errors  kMismatch, listing every tensor that differs, for the checkpoint of another model; those
///         of checkpoint::open_checkpoint().
Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint);

/// The vocabulary that describe_state() wrote; none for a file of token ids.
/// Errors  kCorrupt.
Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest);

}  // namespace hanji::train
