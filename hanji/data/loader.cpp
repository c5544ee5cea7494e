#include "hanji/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/data/internal/epoch_order.h"

namespace hanji::data {

std::vector<layout::Range> cut(layout::Range range, int64_t most) {
  std::vector<layout::Range> pieces;
  for (int64_t begin = range.begin; begin < range.end; begin += most) {
    pieces.push_back({begin, std::min(begin + most, range.end)});
  }
  return pieces;
}

Result<Loader> Loader::create(const LoaderOptions& options) {
  if (options.num_samples < 1 || options.global_batch < 1 || options.micro_batch < 1) {
    return base::invalid_argument(fmt::format(
        "{} samples, train.global_batch {} and train.micro_batch {} must all be at least 1",
        options.num_samples, options.global_batch, options.micro_batch));
  }
  const layout::Range share = options.share;
  if (share.begin < 0 || share.end < share.begin || share.end > options.global_batch) {
    return base::invalid_argument(
        fmt::format("the share [{}, {}) leaves the global batch of {}; see train.split",
                    share.begin, share.end, options.global_batch));
  }
  if (options.epoch_end == plan::EpochEnd::kDrop && options.num_samples < options.global_batch) {
    return base::invalid_argument(fmt::format(
        "data.epoch_end = drop leaves no global batch of {} in epochs of {} samples; set "
        "it to pad or continue",
        options.global_batch, options.num_samples));
  }
  HANJI_ASSIGN_OR_RETURN(auto order, internal::make_epoch_order(options));
  return Loader(options, std::move(order));
}

Loader::Loader(const LoaderOptions& options, std::shared_ptr<const internal::EpochOrder> order)
    : options_(options),
      order_(std::move(order)),
      micro_batches_(cut(options.share, options.micro_batch)) {}

int64_t Loader::steps_per_epoch() const {
  const int64_t batch = options_.global_batch, samples = options_.num_samples;
  switch (options_.epoch_end) {
    case plan::EpochEnd::kContinue: return 0;
    case plan::EpochEnd::kPad: return (samples + batch - 1) / batch;
    case plan::EpochEnd::kDrop: return samples / batch;
  }
  return 0;
}

EpochSample Loader::place_of(int64_t step, int64_t position) const {
  const int64_t steps = steps_per_epoch(), samples = options_.num_samples;
  if (step < 0 || position < 0 || step >= INT64_MAX / options_.global_batch - 1) {
    throw Error(base::invalid_argument(
        fmt::format("sample {} of step {}: both count from 0, and a run has less than 2^63 samples",
                    position, step)));
  }
  const int64_t place = (steps > 0 ? step % steps : step) * options_.global_batch + position;
  return {steps > 0 ? step / steps : place / samples, place % samples};
}

EpochSample Loader::at(int64_t step, int64_t position) const {
  const EpochSample place = place_of(step, position);
  return {place.epoch, order_->at(place.epoch, place.index)};
}

std::vector<EpochSample> Loader::at(int64_t step, layout::Range positions) const {
  std::vector<EpochSample> samples;
  std::vector<int64_t> indices;
  for (int64_t position = positions.begin; position < positions.end;) {
    const EpochSample first = place_of(step, position);
    const int64_t count = std::min(positions.end - position, options_.num_samples - first.index);
    indices.resize(static_cast<size_t>(count));
    order_->at(first.epoch, {first.index, first.index + count}, indices.data());
    for (const int64_t index : indices) samples.push_back({first.epoch, index});
    position += count;
  }
  return samples;
}

int64_t Loader::epoch(int64_t step) const { return place_of(step, 0).epoch; }

}  // namespace hanji::data
