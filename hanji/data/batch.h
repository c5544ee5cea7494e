#pragma once

#include <cstdint>
#include <vector>

#include "hanji/data/loader.h"
#include "hanji/data/source.h"
#include "hanji/layers/batch.h"
#include "hanji/layout/range.h"

namespace hanji::data {

/// [size, ...one sample's]
std::vector<int64_t> shape_of_batch(int64_t size, const std::vector<int64_t>& sample);

/// Memory of the host. From pinned memory a GPU copies while the host goes on; it needs a GPU.
enum class Memory : uint8_t { kPageable, kPinned };

/// Makes `batch` one of the samples at `positions`, all of whose targets count; its tensors are used again
/// when their shape fits, else new, in `memory`, and not written.
void shape_batch(const SampleShape& sample, layout::Range positions, layers::Batch& batch,
                 Memory memory = Memory::kPageable);

/// Fills `batch` with the training samples at `positions` of the global batch of `step`.
///
/// Shape   inputs and targets [B, ...] as the source says, contiguous, on the CPU; all targets count.
/// Cost    the tensors of `batch` are used again when their shape fits.
/// Errors  throws those of Source::read(): kCorrupt for a token id beyond the vocabulary; kInternal
///         with the sample's number for an exception of the source.
void read_batch(const Source& source, const Loader& loader, int64_t step, layout::Range positions,
                layers::Batch& batch);

/// Fills `batch` with the first `count` training samples, again from the first where there are fewer.
void read_first(const Source& source, int64_t count, layers::Batch& batch);

/// Fills `batch` with places `positions` of an evaluation of `total` samples, spread evenly over
/// the validation part: the same samples whatever the number of ranks. `total` <= num_validation().
void read_validation_batch(const Source& source, int64_t total, layout::Range positions,
                           layers::Batch& batch);

}  // namespace hanji::data
