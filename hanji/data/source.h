#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layers/batch.h"

namespace hanji::data {

/// The two parts of a data set: what is learned from, and what is only asked about.
enum class Part : uint8_t { kTrain, kValidation };

/// The tensors of one sample, without the batch's dimension.
struct SampleShape {
  std::vector<int64_t> inputs;
  c10::ScalarType dtype = c10::ScalarType::Long;  ///< Of the inputs.
  std::vector<int64_t> targets;                   ///< Empty: one number.
  c10::ScalarType target_dtype = c10::ScalarType::Long;

  int64_t num_targets() const;
};

/// Samples by number: all that a loader, a batch and a run need to know of a data set.
///
/// Order   a sample is the same for every reader and at any time: a run's order is data::Loader's.
/// Thread  any number of threads may read.
class Source {
 public:
  virtual ~Source() = default;

  virtual int64_t count(Part part) const = 0;
  int64_t num_train() const { return count(Part::kTrain); }
  int64_t num_validation() const { return count(Part::kValidation); }

  virtual SampleShape shape() const = 0;

  /// Writes sample `index` of `part`, all of whose targets count, to one row of a batch.
  ///
  /// Shape   the batch's tensors are [rows, ...], then as shape() says, contiguous, on the CPU.
  /// Errors  kInvalidArgument for an index outside the part; those of the data.
  virtual Status read(Part part, int64_t index, layers::Batch& batch, int64_t row) const = 0;

  /// As read(), of training sample `index` as the model sees it in `epoch`: sources that vary their
  /// samples do so by (epoch, index) alone.
  virtual Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                               int64_t row) const;

  /// For a manifest that must recognise its data again.
  virtual uint64_t checksum() const = 0;

 protected:
  Source() = default;
  Source(const Source&) = default;
  Source& operator=(const Source&) = default;
  Source(Source&&) = default;
  Source& operator=(Source&&) = default;

  /// kInvalidArgument unless `index` lies in the part.
  Status check_index(Part part, int64_t index) const;
};

}  // namespace hanji::data
