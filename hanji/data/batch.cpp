#include "hanji/data/batch.h"

#include <ATen/Functions.h>

namespace hanji::data {
namespace {

void reserve(int64_t size, int64_t block, layers::Batch& batch) {
  const std::vector<int64_t> shape = {size, block};
  const auto fits = [&shape](const at::Tensor& tensor) {
    return tensor.defined() && tensor.sizes() == at::IntArrayRef(shape);
  };
  if (!fits(batch.inputs)) batch.inputs = at::empty(shape, at::kLong);
  if (!fits(batch.targets)) batch.targets = at::empty(shape, at::kLong);
  batch.num_valid = size * block;
}

}  // namespace

void read_batch(const TokenSamples& samples, const Loader& loader, int64_t step,
                layout::Range positions, layers::Batch& batch) {
  reserve(positions.size(), samples.block(), batch);
  batch.positions = positions;
  int64_t* tokens = batch.inputs.mutable_data_ptr<int64_t>();
  int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
  for (int64_t place = positions.begin; place < positions.end; ++place) {
    const int64_t row = (place - positions.begin) * samples.block();
    throw_if_error(
        samples.copy_sample(Part::kTrain, loader.sample(step, place), tokens + row, targets + row));
  }
}

void read_validation_batch(const TokenSamples& samples, int64_t total, layout::Range positions,
                           layers::Batch& batch) {
  reserve(positions.size(), samples.block(), batch);
  batch.positions = positions;
  int64_t* tokens = batch.inputs.mutable_data_ptr<int64_t>();
  int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
  for (int64_t place = positions.begin; place < positions.end; ++place) {
    const int64_t row = (place - positions.begin) * samples.block();
    const int64_t index = place * samples.num_validation() / total;
    throw_if_error(samples.copy_sample(Part::kValidation, index, tokens + row, targets + row));
  }
}

}  // namespace hanji::data
