#include "hanji/data/batch.h"

#include <ATen/Functions.h>

namespace hanji::data {
namespace {

void reserve(at::Tensor& tensor, const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  const bool fits =
      tensor.defined() && tensor.sizes() == at::IntArrayRef(shape) && tensor.scalar_type() == dtype;
  if (!fits) tensor = at::empty(shape, dtype);
}

/// Fills `batch` with the samples that `index` names, by position.
template <class Index>
void read_rows(const Source& source, Part part, layout::Range positions, layers::Batch& batch,
               const Index& index) {
  shape_batch(source.shape(), positions, batch);
  for (int64_t place = positions.begin; place < positions.end; ++place) {
    throw_if_error(source.read(part, index(place), batch, place - positions.begin));
  }
}

}  // namespace

std::vector<int64_t> shape_of_batch(int64_t size, const std::vector<int64_t>& sample) {
  std::vector<int64_t> shape = {size};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

void shape_batch(const SampleShape& sample, layout::Range positions, layers::Batch& batch) {
  reserve(batch.inputs, shape_of_batch(positions.size(), sample.inputs), sample.dtype);
  reserve(batch.targets, shape_of_batch(positions.size(), sample.targets), sample.target_dtype);
  batch.num_valid = positions.size() * sample.num_targets();
  batch.positions = positions;
}

void read_batch(const Source& source, const Loader& loader, int64_t step, layout::Range positions,
                layers::Batch& batch) {
  read_rows(source, Part::kTrain, positions, batch,
            [&](int64_t place) { return loader.sample(step, place); });
}

void read_first(const Source& source, int64_t count, layers::Batch& batch) {
  read_rows(source, Part::kTrain, {0, count}, batch,
            [&](int64_t place) { return place % source.num_train(); });
}

void read_validation_batch(const Source& source, int64_t total, layout::Range positions,
                           layers::Batch& batch) {
  read_rows(source, Part::kValidation, positions, batch,
            [&](int64_t place) { return place * source.num_validation() / total; });
}

}  // namespace hanji::data
