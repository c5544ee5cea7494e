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

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(base::now_ns() - begin_ns) * 1e-9;
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

Status Saver::save(State state, Manifest manifest, std::shared_ptr<const void> owner) {
  const int64_t begin = base::now_ns();
  Status before = wait();
  std::promise<void> copied;
  copied_ = copied.get_future();
  writer_ = std::jthread([this, state = std::move(state), manifest = std::move(manifest),
                          owner = std::move(owner), copied = std::move(copied)]() mutable {
    status_ = stage(state);
    owner.reset();
    copied.set_value();
    if (status_.ok()) status_ = write(std::move(manifest));
  });
  times_.blocked_seconds.push_back(seconds_since(begin));
  return before;
}

void Saver::wait_copied() {
  if (!copied_.valid()) return;
  const int64_t begin = base::now_ns();
  copied_.get();
  times_.blocked_seconds.back() += seconds_since(begin);
}

Status Saver::wait() {
  wait_copied();
  if (writer_.joinable()) writer_.join();
  return std::exchange(status_, Status());
}

Status Saver::stage(const State& state) {
  trace::Span span(recorder_, "checkpoint copy", trace::Category::kCheckpoint,
                   trace::Lane::kCheckpoint);
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

Status Saver::write(Manifest manifest) {
  trace::Span span(recorder_, "checkpoint write", trace::Category::kCheckpoint,
                   trace::Lane::kCheckpoint);
  span.set_bytes(total_bytes(staged_.model) + total_bytes(staged_.optimizer));
  const int64_t begin = base::now_ns();
  try {
    HANJI_RETURN_IF_ERROR(save_checkpoint(options_, staged_, std::move(manifest)));
  } catch (const std::bad_alloc&) {
    return base::out_of_memory("no memory while a checkpoint was written");
  }
  times_.written_seconds.push_back(seconds_since(begin));
  return {};
}

}  // namespace hanji::checkpoint
