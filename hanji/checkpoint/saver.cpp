#include "hanji/checkpoint/saver.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"

namespace hanji::checkpoint {
namespace {

// A tensor's copy starts on its own cache line, as the heap's do.
constexpr size_t kAlignment = 64;

size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t staged_bytes(std::span<const NamedTensor> tensors) {
  size_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += padded(tensor.bytes.size());
  return bytes;
}

std::byte* copy_tensors(std::span<const NamedTensor> tensors, std::byte* to,
                        std::vector<NamedTensor>& copies) {
  copies.assign(tensors.begin(), tensors.end());
  for (NamedTensor& copy : copies) {
    if (!copy.bytes.empty()) std::memcpy(to, copy.bytes.data(), copy.bytes.size());
    copy.bytes = {to, copy.bytes.size()};
    to += padded(copy.bytes.size());
  }
  return to;
}

}  // namespace

Saver::Saver(SaveOptions options, trace::Recorder* recorder)
    : options_(std::move(options)), recorder_(recorder) {}

Status Saver::save(const State& state, Manifest manifest) {
  const int64_t begin = base::now_ns();
  Status before = wait();
  HANJI_RETURN_IF_ERROR(stage(state));
  writer_ = std::jthread([this, manifest = std::move(manifest)] { write(manifest); });
  times_.blocked_seconds.push_back(static_cast<double>(base::now_ns() - begin) * 1e-9);
  return before;
}

Status Saver::wait() {
  if (writer_.joinable()) writer_.join();
  return std::exchange(status_, Status());
}

Status Saver::stage(const State& state) {
  trace::Span span(recorder_, "checkpoint copy", trace::Category::kCheckpoint);
  const size_t bytes = staged_bytes(state.model) + staged_bytes(state.optimizer);
  span.set_bytes(static_cast<int64_t>(bytes));
  if (bytes > buffer_bytes_) {
    buffer_.reset();
    buffer_bytes_ = 0;
    buffer_.reset(new (std::nothrow) std::byte[bytes]);
    if (buffer_ == nullptr) {
      return base::out_of_memory(
          fmt::format("no memory for the {} copy that a checkpoint is written from",
                      base::format_bytes(static_cast<int64_t>(bytes))));
    }
    buffer_bytes_ = bytes;
  }
  std::byte* next = copy_tensors(state.model, buffer_.get(), staged_.model);
  copy_tensors(state.optimizer, next, staged_.optimizer);
  return {};
}

void Saver::write(Manifest manifest) {
  trace::Span span(recorder_, "checkpoint write", trace::Category::kCheckpoint,
                   trace::Lane::kCheckpoint);
  span.set_bytes(total_bytes(staged_.model) + total_bytes(staged_.optimizer));
  const int64_t begin = base::now_ns();
  try {
    status_ = save_checkpoint(options_, staged_, std::move(manifest));
  } catch (const std::bad_alloc&) {
    status_ = base::out_of_memory("no memory while a checkpoint was written");
  }
  if (!status_.ok()) return;
  times_.written_seconds.push_back(static_cast<double>(base::now_ns() - begin) * 1e-9);
}

}  // namespace hanji::checkpoint
