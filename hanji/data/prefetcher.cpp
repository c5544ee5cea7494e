#include "hanji/data/prefetcher.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/data/batch.h"
#include "hanji/data/internal/read_run.h"

namespace hanji::data {
namespace internal {

/// The batches of a step: rows are claimed in order, and done in any.
struct ReadStep {
  int64_t step = -1;
  std::vector<EpochSample> samples;  // of the share
  std::vector<layers::Batch> batches;
  int64_t num_rows = 0;
  int64_t claimed = 0;
  int64_t done = 0;
  int64_t first_failed = 0;  ///< Position, with `failure`.
  Status failure;

  bool has_unclaimed() const { return claimed < num_rows; }
  bool is_done() const { return done == num_rows; }
};

struct Claim {
  ReadStep* of = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

}  // namespace internal

using internal::Claim;
using internal::ReadStep;

struct Prefetcher::State {
  const Source& source;
  const Loader loader;
  const int64_t end_step;
  const int64_t claim_rows;
  Memory memory = Memory::kPageable;

  std::mutex mutex;
  std::condition_variable_any changed;
  ReadingTime time;
  std::vector<ReadStep> steps;        // step s is in place s modulo their number
  std::vector<std::jthread> threads;  // last: they use all of the above

  State(const Source& from, const Loader& order, int num_threads, int64_t end, int64_t ahead)
      : source(from),
        loader(order),
        end_step(end),
        claim_rows(
            std::clamp<int64_t>(order.options().share.size() / (4 * (num_threads + 1)), 1, 16)),
        steps(static_cast<size_t>(ahead + 1)) {}

  ReadStep& place_of(int64_t step) { return steps[static_cast<size_t>(step) % steps.size()]; }

  /// Under the lock; nobody works on what this replaces.
  void begin(int64_t step) {
    ReadStep& one = place_of(step);
    const auto& cuts = loader.micro_batches();
    one.batches.resize(cuts.size());
    for (size_t i = 0; i < cuts.size(); ++i) {
      shape_batch(source.shape(), cuts[i], one.batches[i], memory);
    }
    one.step = step;
    one.samples = loader.at(step, loader.options().share);
    one.num_rows = loader.options().share.size();
    one.claimed = one.done = 0;
    one.failure = {};
  }

  /// Under the lock: the next rows of the earliest step.
  std::optional<Claim> claim() {
    ReadStep* next = nullptr;
    for (ReadStep& one : steps) {
      if (one.has_unclaimed() && (!next || one.step < next->step)) next = &one;
    }
    if (!next) return std::nullopt;
    const int64_t begin = next->claimed;
    // Pairs that are mixed stay together.
    const int64_t end = begin + claim_rows;
    const bool cuts_pair = (loader.options().share.begin + end) % 2 != 0;
    next->claimed = std::min(end + (cuts_pair ? 1 : 0), next->num_rows);
    return Claim{next, begin, next->claimed};
  }

  internal::BatchRow row_of(ReadStep& of, int64_t position) const {
    const int64_t row = position - loader.options().share.begin;
    layers::Batch& batch = of.batches[static_cast<size_t>(row / loader.options().micro_batch)];
    return {&batch, position - batch.positions.begin};
  }

  /// Without the lock while it reads.
  void work(const Claim& claimed, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    ReadStep& of = *claimed.of;
    const layout::Range share = loader.options().share;
    const int64_t begun = base::now_ns();
    const internal::RunReader reader(source, loader, of.step, share, of.samples);
    const auto failure = reader.read({share.begin + claimed.begin, share.begin + claimed.end},
                                     [&](int64_t position) { return row_of(of, position); });
    const int64_t ended = base::now_ns();
    lock.lock();
    time.samples += claimed.end - claimed.begin;
    time.seconds += static_cast<double>(ended - begun) * 1e-9;
    const bool has_failed = !failure.status.ok();
    if (has_failed && (of.failure.ok() || failure.position < of.first_failed)) {
      of.failure = failure.status;
      of.first_failed = failure.position;
    }
    of.done += claimed.end - claimed.begin;
    if (of.is_done()) changed.notify_all();
  }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      if (const auto claimed = claim()) {
        work(*claimed, lock);
      } else {
        changed.wait(lock, stop,
                     [this] { return std::ranges::any_of(steps, &ReadStep::has_unclaimed); });
      }
    }
  }

  /// Reads with the others until `of` is done. They wait for nobody, so this wait ends.
  void finish(ReadStep& of, std::unique_lock<std::mutex>& lock) {
    while (of.has_unclaimed()) work(*claim(), lock);
    changed.wait(lock, [&] { return of.is_done(); });
  }

  /// Begins the step that is asked and those behind it, where others are in their places.
  ReadStep& advance(int64_t step, std::unique_lock<std::mutex>& lock) {
    const int64_t end = std::min(step + std::ssize(steps), std::max(end_step, step + 1));
    bool has_begun = false;
    for (int64_t next = step; next < end; ++next) {
      ReadStep& one = place_of(next);
      if (one.step == next) continue;
      finish(one, lock);
      begin(next);
      has_begun = true;
    }
    if (has_begun) changed.notify_all();
    return place_of(step);
  }
};

Prefetcher::Prefetcher(const Source& source, const Loader& loader, int num_threads,
                       int64_t end_step, int64_t steps_ahead)
    // Nobody reads ahead without threads: one batch, which stays in the caches, is enough.
    : state_(std::make_unique<State>(source, loader, num_threads, end_step,
                                     num_threads > 0 ? steps_ahead : 0)) {
  State* state = state_.get();
  for (int i = 0; i < num_threads; ++i) {
    state->threads.emplace_back([state](const std::stop_token& stop) { state->run(stop); });
  }
}

Prefetcher::~Prefetcher() {
  for (std::jthread& one : state_->threads) one.request_stop();
}

void Prefetcher::use_memory(Memory memory) { state_->memory = memory; }

const layers::Batch& Prefetcher::read(int64_t step, layout::Range positions) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  ReadStep& now = s.advance(step, lock);
  s.finish(now, lock);
  throw_if_error(now.failure);
  const auto is_asked = [&](const layers::Batch& one) { return one.positions == positions; };
  return *std::ranges::find_if(now.batches, is_asked);
}

ReadingTime Prefetcher::reading_time() const {
  const std::lock_guard lock(state_->mutex);
  ReadingTime time = state_->time;
  time.fetching = state_->source.fetching_seconds();
  return time;
}

int64_t Prefetcher::bytes() const {
  int64_t bytes = 0;
  for (const ReadStep& one : state_->steps) {
    for (const layers::Batch& batch : one.batches) {
      bytes += static_cast<int64_t>(batch.inputs.nbytes() + batch.targets.nbytes());
    }
  }
  return bytes;
}

}  // namespace hanji::data
