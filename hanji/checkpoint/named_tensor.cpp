#include "hanji/checkpoint/named_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <queue>

namespace hanji::checkpoint {
namespace {

/// The next of a tensor's contiguous runs from one of its SavedRuns.
struct NextRun {
  int64_t begin;
  const SavedRuns* of;
  int64_t index;

  bool operator>(const NextRun& other) const { return begin > other.begin; }
};

/// The first run of `all` with an element at or after `element`.
int64_t first_run_after(const layout::StridedRange& all, int64_t element) {
  const int64_t missed = element - all.run(0).end;
  return missed < 0 || all.count == 1 ? 0 : missed / all.stride + 1;
}

}  // namespace

void for_each_run(const SavedTensor& saved, layout::Range elements,
                  const std::function<void(int64_t first, std::span<const std::byte>)>& visit) {
  const auto width = static_cast<int64_t>(base::size_of(saved.dtype));
  std::priority_queue<NextRun, std::vector<NextRun>, std::greater<>> next;
  const auto add = [&](const SavedRuns& of, int64_t index) {
    if (index == of.elements.count) return;
    const layout::Range run = of.elements.run(index);
    if (!run.empty() && run.begin < elements.end) next.push({run.begin, &of, index});
  };
  for (const SavedRuns& of : saved.runs) {
    if (of.elements.extent().end > elements.begin) {
      add(of, first_run_after(of.elements, elements.begin));
    }
  }
  while (!next.empty()) {
    const auto [begin, of, index] = next.top();
    next.pop();
    const layout::Range run{std::max(begin, elements.begin),
                            std::min(begin + of->elements.size, elements.end)};
    const int64_t skipped = index * of->elements.size + run.begin - begin;
    visit(run.begin - elements.begin, of->bytes.subspan(static_cast<size_t>(skipped * width),
                                                        static_cast<size_t>(run.size() * width)));
    add(*of, index + 1);
  }
}

std::optional<int64_t> dense_bytes(DType dtype, std::span<const int64_t> shape) {
  bool empty = false;
  int64_t bytes = static_cast<int64_t>(base::size_of(dtype));
  for (const int64_t length : shape) {
    if (length < 0) return std::nullopt;
    if (length == 0) empty = true;
  }
  if (empty) return 0;
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string describe(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", base::name_of(dtype), fmt::join(shape, ", "));
}

int64_t SavedTensor::num_bytes() const {
  int64_t bytes = 0;
  for (const SavedRuns& run : runs) bytes += static_cast<int64_t>(run.bytes.size());
  return bytes;
}

int64_t SavedTensor::num_elements() const {
  return num_bytes() / static_cast<int64_t>(base::size_of(dtype));
}

std::vector<SavedTensor> in_one_run(std::span<const NamedTensor> tensors) {
  std::vector<SavedTensor> saved;
  for (const NamedTensor& tensor : tensors) {
    const size_t count = tensor.bytes.size() / base::size_of(tensor.dtype);
    saved.push_back({tensor.name,
                     tensor.dtype,
                     tensor.shape,
                     {{{.size = static_cast<int64_t>(count)}, tensor.bytes}}});
  }
  return saved;
}

}  // namespace hanji::checkpoint
