#include "hanji/data/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/data/order.h"

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
  return Loader(options);
}

Loader::Loader(const LoaderOptions& options)
    : options_(options), micro_batches_(cut(options.share, options.micro_batch)) {}

EpochSample Loader::at(int64_t step, int64_t position) const {
  const int64_t place = step * options_.global_batch + position;
  const int64_t epoch = place / options_.num_samples;
  const int64_t index = place % options_.num_samples;
  if (options_.order == plan::SampleOrder::kSequential) return {epoch, index};
  const Permutation order(options_.seed, static_cast<uint64_t>(epoch), options_.num_samples);
  return {epoch, order(index)};
}

int64_t Loader::epoch(int64_t step) const {
  return step * options_.global_batch / options_.num_samples;
}

}  // namespace hanji::data
