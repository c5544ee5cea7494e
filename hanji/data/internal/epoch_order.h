#pragma once

#include <cstdint>
#include <memory>

#include "hanji/base/status.h"
#include "hanji/data/loader.h"

namespace hanji::data::internal {

/// Which training sample stands at which place of an epoch.
///
/// Thread  any number of threads may ask.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;

  /// `place` in [0, number of samples).
  virtual int64_t at(int64_t epoch, int64_t place) const = 0;
  /// Those at `places`, in order.
  virtual void at(int64_t epoch, layout::Range places, int64_t* out) const;

 protected:
  EpochOrder() = default;
  EpochOrder(const EpochOrder&) = default;
  EpochOrder& operator=(const EpochOrder&) = default;
};

/// The order that plan::SampleOrder names, or draws by the weights.
///
/// Cost    random, sequential: nothing. weighted: 12 bytes per sample. quasi: 4 bytes per sample and 12
///         per page, and 8 per page of each epoch in use. ffcv, torch: 8 bytes per sample of each
///         epoch in use, written when the epoch is first asked.
/// Errors  kInvalidArgument for pages or weights of another number of samples, and for weights that are
///         negative, not finite or all 0; kUnsupported for kQuasi without pages.
Result<std::shared_ptr<const EpochOrder>> make_epoch_order(const LoaderOptions& options);

}  // namespace hanji::data::internal
