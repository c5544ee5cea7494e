#include "hanji/checkpoint/saver.h"

#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "hanji/base/clock.h"

namespace hanji::checkpoint {
namespace {

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(base::now_ns() - begin_ns) * 1e-9;
}

}  // namespace

Saver::Saver(SaveOptions options, trace::Recorder* recorder)
    : options_(std::move(options)), recorder_(recorder) {}

Status Saver::begin(int64_t step, const SaveSize& size) {
  const int64_t start = base::now_ns();
  join();
  Status begun = begin_checkpoint(options_, step, size);
  if (!begun.ok()) ended_.push_back({step, begun});
  begin_seconds_ = seconds_since(start);
  return begun;
}

void Saver::save(State state, Manifest manifest, Writer writer) {
  const int64_t begin = base::now_ns();
  join();
  options_.writer = std::move(writer);
  std::promise<void> copied;
  copied_ = copied.get_future();
  has_ended_ = false;
  last_ = {.step = manifest.step};
  writer_ = std::jthread([this, state = std::move(state), manifest = std::move(manifest),
                          copied = std::move(copied)](std::stop_token stop) mutable {
    bool told = false;
    const auto report = [&] {
      if (!std::exchange(told, true)) copied.set_value();
    };
    last_.status = run(state, std::move(manifest),
                       {.copied = report, .stop = std::move(stop), .buffer = &buffer_});
    has_ended_ = true;  // before a caller that waits for the copy asks how it went
    report();
  });
  times_.blocked_seconds.push_back(seconds_since(begin) + std::exchange(begin_seconds_, 0));
}

void Saver::wait_copied() {
  if (!copied_.valid()) return;
  const int64_t begin = base::now_ns();
  copied_.get();
  times_.blocked_seconds.back() += seconds_since(begin);
}

void Saver::join() {
  wait_copied();
  if (!writer_.joinable()) return;
  writer_.join();
  ended_.push_back(std::exchange(last_, {}));
}

std::vector<SaveOutcome> Saver::poll() {
  if (has_ended_) join();
  return std::exchange(ended_, {});
}

std::vector<SaveOutcome> Saver::wait() {
  join();
  return std::exchange(ended_, {});
}

Status Saver::run(const State& state, Manifest manifest, SaveSteps steps) {
  const int64_t begin = base::now_ns();
  const auto category = trace::Category::kCheckpoint;
  std::optional<trace::Span> copy(std::in_place, recorder_, "checkpoint copy", category,
                                  trace::Lane::kCheckpoint);
  std::optional<trace::Span> write;
  copy->set_bytes(state.num_bytes());
  steps.copied = [&, report = std::move(steps.copied)] {
    report();
    copy.reset();
    write.emplace(recorder_, "checkpoint write", category, trace::Lane::kCheckpoint);
    write->set_bytes(state.num_bytes());
  };
  try {
    HANJI_RETURN_IF_ERROR(save_checkpoint(options_, state, std::move(manifest), steps));
  } catch (const std::bad_alloc&) {
    return base::out_of_memory("no memory while a checkpoint was written");
  } catch (const std::exception& error) {
    return base::internal(error.what());
  }
  times_.written_seconds.push_back(seconds_since(begin));
  return {};
}

}  // namespace hanji::checkpoint
