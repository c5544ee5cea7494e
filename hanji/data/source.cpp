#include "hanji/data/source.h"

#include <fmt/format.h>

namespace hanji::data {

int64_t SampleShape::num_targets() const {
  int64_t count = 1;
  for (const int64_t size : targets) count *= size;
  return classes > 0 ? count / classes : count;
}

Status Source::read_in_epoch(int64_t, int64_t index, layers::Batch& batch, int64_t row) const {
  return read(Part::kTrain, index, batch, row);
}

Status Source::read_parts(size_t last, const SampleRow& into) const {
  (void)last;
  return read_in_epoch(into.epoch, into.index, *into.batch, into.row);
}

void Source::mix(const SampleRow&, const SampleRow&) const {}

Status Source::check_index(Part part, int64_t index) const {
  if (index >= 0 && index < count(part)) return {};
  return base::invalid_argument(
      fmt::format("sample {} asked of a part that holds {}", index, count(part)));
}

}  // namespace hanji::data
