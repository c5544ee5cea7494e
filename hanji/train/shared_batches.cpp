#include "hanji/train/shared_batches.h"

#include <utility>

#include "hanji/comm/shared_tensor.h"
#include "hanji/data/batch.h"

namespace hanji::train {

SharedBatches::SharedBatches(const std::optional<comm::Group>& peers, data::SampleShape shape,
                             int64_t samples)
    : shape_(std::move(shape)), capacity_(samples) {
  if (!peers || !comm::shares_memory(*peers)) return;
  reads_ = peers->rank() == 0;
  const auto shared = [&](const std::vector<int64_t>& sample, c10::ScalarType dtype) {
    return comm::shared_zeros(data::shape_of_batch(samples, sample), dtype, 0, *peers, "data");
  };
  for (int half = 0; half < 2; ++half) {
    layers::Batch& batch = halves_.emplace_back();
    batch.inputs = shared(shape_.inputs, shape_.dtype);
    batch.targets = shared(shape_.targets, shape_.target_dtype);
  }
}

int64_t SharedBatches::own_bytes() const {
  int64_t bytes = 0;
  for (const layers::Batch& half : halves_) {
    bytes += static_cast<int64_t>(half.inputs.nbytes() + half.targets.nbytes());
  }
  return reads_ ? bytes : 0;
}

void SharedBatches::hand_over(const layers::Batch& ready, layers::Batch& batch, Use use) const {
  if (!are_shared() && use == Use::kUntilNext) {
    batch = ready;
    return;
  }
  data::shape_batch(shape_, ready.positions, batch);
  batch.inputs.copy_(ready.inputs);
  batch.targets.copy_(ready.targets);
}

void SharedBatches::read(std::span<const layout::Range> cuts, std::span<layers::Batch> batches,
                         const Fill& fill) {
  turn_ = 1 - turn_;
  int64_t row = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    layers::Batch& batch = batches[i];
    if (are_shared()) {
      batch.inputs = halves_[turn_].inputs.narrow(0, row, cuts[i].size());
      batch.targets = halves_[turn_].targets.narrow(0, row, cuts[i].size());
      row += cuts[i].size();
    }
    reads_ ? fill(cuts[i], batch) : data::shape_batch(shape_, cuts[i], batch);
  }
}

}  // namespace hanji::train
