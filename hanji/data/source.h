#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  /// Not 0: the last dimension of targets is the weight of each of so many classes in one target.
  int64_t classes = 0;

  int64_t num_targets() const;
};

/// A training sample as it stands in a row of a batch.
struct SampleRow {
  int64_t epoch = 0;
  int64_t index = 0;
  layers::Batch* batch = nullptr;
  int64_t row = 0;
};

/// What a method that does not learn reaches, in the metric of the models of these samples.
struct Baseline {
  std::string_view name;
  double value = 0;
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

  /// Says that training sample `index` is read next: a source may bring its bytes nearer. Cost: no wait.
  virtual void expect(int64_t index) const { (void)index; }

  /// Whether samples are mixed with the other one of their pair: those at positions 2k and 2k + 1 of a
  /// global batch. The last of an odd number has none.
  virtual bool mixes_pairs() const { return false; }
  /// Mixes a pair that read_in_epoch() has written, each with the other as it was before; by their
  /// (epoch, index) alone. A rank that has one of them reads the other again.
  virtual void mix(const SampleRow& even, const SampleRow& odd) const;

  /// The parts of a sample in the order in which read_in_epoch() makes them, for those who time them.
  /// Empty: it is not made in parts.
  virtual std::vector<std::string> parts() const { return {}; }
  /// As read_in_epoch() up to and with part `last` < parts().size(), for timings: only the last one leaves
  /// a sample in the row.
  virtual Status read_parts(size_t last, const SampleRow& into) const;

  /// Seconds in which threads have waited for bytes of samples so far, all threads one after the other; absent: it is
  /// not told apart from making samples of them.
  virtual std::optional<double> fetching_seconds() const { return std::nullopt; }

  /// The page of the file that each training sample is read from; empty: it is not stored in pages.
  virtual std::vector<uint32_t> train_pages() const { return {}; }

  /// The figure to beat on the validation part; none by default. Cost: reads some hundred samples.
  virtual std::optional<Baseline> baseline() const { return std::nullopt; }

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
