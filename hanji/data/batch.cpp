#include "hanji/data/batch.h"

#include <ATen/Functions.h>

#include "hanji/data/internal/read_run.h"

namespace hanji::data {
namespace {

void reserve(at::Tensor& tensor, const std::vector<int64_t>& shape,
             const at::TensorOptions& options) {
  const bool fits = tensor.defined() && tensor.sizes() == at::IntArrayRef(shape) &&
                    tensor.dtype() == options.dtype();
  if (!fits) tensor = at::empty(shape, options);
}

/// Fills `batch` by read(position, row).
template <class Read>
void read_rows(const Source& source, layout::Range positions, layers::Batch& batch,
               const Read& read) {
  shape_batch(source.shape(), positions, batch);
  for (int64_t place = positions.begin; place < positions.end; ++place) {
    throw_if_error(read(place, place - positions.begin));
  }
}

}  // namespace

std::vector<int64_t> shape_of_batch(int64_t size, const std::vector<int64_t>& sample) {
  std::vector<int64_t> shape = {size};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

void shape_batch(const SampleShape& sample, layout::Range positions, layers::Batch& batch,
                 Memory memory) {
  const auto options = at::TensorOptions().pinned_memory(memory == Memory::kPinned);
  reserve(batch.inputs, shape_of_batch(positions.size(), sample.inputs),
          options.dtype(sample.dtype));
  reserve(batch.targets, shape_of_batch(positions.size(), sample.targets),
          options.dtype(sample.target_dtype));
  batch.num_valid = positions.size() * sample.num_targets();
  batch.positions = positions;
}

void read_batch(const Source& source, const Loader& loader, int64_t step, layout::Range positions,
                layers::Batch& batch) {
  shape_batch(source.shape(), positions, batch);
  const std::vector<EpochSample> samples = loader.at(step, positions);
  const internal::RunReader reader(source, loader, step, positions, samples);
  throw_if_error(reader
                     .read(positions,
                           [&](int64_t place) {
                             return internal::BatchRow{&batch, place - positions.begin};
                           })
                     .status);
}

void read_first(const Source& source, int64_t count, layers::Batch& batch) {
  read_rows(source, {0, count}, batch, [&](int64_t place, int64_t row) {
    return source.read(Part::kTrain, place % source.num_train(), batch, row);
  });
}

void read_validation_batch(const Source& source, int64_t total, layout::Range positions,
                           layers::Batch& batch) {
  read_rows(source, positions, batch, [&](int64_t place, int64_t row) {
    const int64_t index = place * source.num_validation() / total;
    return source.read(Part::kValidation, index, batch, row);
  });
}

}  // namespace hanji::data
