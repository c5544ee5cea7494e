#include "hanji/data/validation_reader.h"

#include <ATen/core/Tensor.h>

#include "hanji/data/prefetcher.h"

namespace hanji::data {
namespace {

/// The places of a share as the training samples of one epoch.
class SharePlaces final : public Source {
 public:
  SharePlaces(const Source& source, int64_t total, layout::Range share)
      : source_(source), total_(total), share_(share) {}

  int64_t count(Part part) const override { return part == Part::kTrain ? share_.size() : 0; }
  SampleShape shape() const override { return source_.shape(); }
  uint64_t checksum() const override { return source_.checksum(); }

  Status read(Part, int64_t index, layers::Batch& batch, int64_t row) const override {
    const int64_t sample = (share_.begin + index) * source_.num_validation() / total_;
    return source_.read(Part::kValidation, sample, batch, row);
  }

  /// What follows the share would only fill the last batch.
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override {
    return epoch > 0 ? Status() : read(Part::kTrain, index, batch, row);
  }

 private:
  const Source& source_;
  int64_t total_;
  layout::Range share_;
};

}  // namespace

struct ValidationReader::State {
  SharePlaces places;
  layout::Range share;
  int64_t micro_batch;
  Prefetcher prefetcher;

  State(const Source& source, int64_t total, layout::Range own, int64_t most,
        const plan::Reading& reading)
      : places(source, total, own),
        share(own),
        micro_batch(most),
        prefetcher(places,
                   Loader::create({.num_samples = own.size(),
                                   .global_batch = most,
                                   .share = {0, most},
                                   .micro_batch = most,
                                   .order = plan::SampleOrder::kSequential})
                       .or_throw(),
                   static_cast<int>(reading.workers), (own.size() + most - 1) / most,
                   reading.prefetch) {}
};

ValidationReader::ValidationReader(const Source& source, int64_t total, layout::Range share,
                                   int64_t micro_batch, const plan::Reading& reading)
    : state_(std::make_unique<State>(source, total, share, micro_batch, reading)) {}

ValidationReader::~ValidationReader() = default;

layers::Batch ValidationReader::read(layout::Range positions) {
  State& s = *state_;
  const int64_t step = (positions.begin - s.share.begin) / s.micro_batch;
  const layers::Batch& full = s.prefetcher.read(step, {0, s.micro_batch});
  return {.inputs = full.inputs.narrow(0, 0, positions.size()),
          .targets = full.targets.narrow(0, 0, positions.size()),
          .positions = positions,
          .num_valid = full.num_valid / s.micro_batch * positions.size()};
}

}  // namespace hanji::data
