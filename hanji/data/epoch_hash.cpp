#include "hanji/data/epoch_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <ranges>
#include <span>
#include <utility>

#include "hanji/base/at_end.h"
#include "hanji/base/checksum.h"
#include "hanji/base/units.h"
#include "hanji/data/page_cache.h"
#include "hanji/data/prefetcher.h"
#include "hanji/data/source.h"

namespace hanji::data {
namespace internal {

/// What one rank reads with.
struct ReadingRank {
  Loader loader;
  Prefetcher prefetcher;

  ReadingRank(const Source& source, const Loader& of, const ReadingWay& way, int64_t steps)
      : loader(of), prefetcher(source, loader, way.workers, steps, way.prefetch) {}
};

/// The bytes of one row of a contiguous tensor.
std::span<const std::byte> row_bytes(const at::Tensor& tensor, int64_t row) {
  const auto size = static_cast<size_t>(tensor.nbytes()) / static_cast<size_t>(tensor.size(0));
  return {static_cast<const std::byte*>(tensor.const_data_ptr()) + static_cast<size_t>(row) * size,
          size};
}

/// Batches in the order of the run become hashes.
class RunHasher {
 public:
  explicit RunHasher(int64_t epochs) : epochs_(static_cast<size_t>(epochs)) {}

  void add(const Loader& loader, int64_t step, const layers::Batch& batch) {
    const std::vector<EpochSample> samples = loader.at(step, batch.positions);
    for (int64_t row = 0; row < batch.size(); ++row) {
      const auto epoch = static_cast<size_t>(samples[static_cast<size_t>(row)].epoch);
      if (epoch >= epochs_.size()) continue;
      ++num_samples_;
      for (const at::Tensor* tensor : {&batch.inputs, &batch.targets}) {
        epochs_[epoch].update(row_bytes(*tensor, row));
        step_.update(row_bytes(*tensor, row));
      }
    }
  }

  void end_step() { steps_.push_back(std::exchange(step_, {}).digest()); }

  ReadingHashes hashes() const {
    ReadingHashes found{.steps = steps_, .num_samples = num_samples_};
    for (const base::Xxh3& one : epochs_) found.epochs.push_back(one.digest());
    return found;
  }

 private:
  std::vector<base::Xxh3> epochs_;
  base::Xxh3 step_;
  std::vector<uint64_t> steps_;
  int64_t num_samples_ = 0;
};

/// The memory of a cache, for the ranks of this process together.
class AttachedCache {
 public:
  AttachedCache(PageCache* cache, const Source& source, const Loader& all, int64_t steps,
                int64_t prefetch)
      : cache_(cache) {
    if (!cache_) return;
    memory_.resize(static_cast<size_t>(cache_->memory_bytes(1)) + kAlignment);
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    std::byte* begin = memory_.data() + (kAlignment - at % kAlignment) % kAlignment;
    cache_->attach(begin, 0, 1);
    cache_->start_reading(all, source.train_pages(), {0, steps}, prefetch);
  }
  AttachedCache(const AttachedCache&) = delete;
  AttachedCache& operator=(const AttachedCache&) = delete;
  ~AttachedCache() {
    if (cache_) cache_->stop();
  }

  void cancel() const {
    if (cache_) cache_->cancel();
  }
  void finish_step(int64_t step) const {
    if (cache_) cache_->finish_step(step);
  }

 private:
  static constexpr size_t kAlignment = 4096;  // of direct reads
  PageCache* cache_;
  std::vector<std::byte> memory_;
};

Result<Loader> loader_of_rank(const EpochHashOptions& options, int rank) {
  const int64_t batch = options.loader.global_batch;
  LoaderOptions own = options.loader;
  own.share = {batch * rank / options.way.ranks, batch * (rank + 1) / options.way.ranks};
  if (own.micro_batch == 0) own.micro_batch = std::max<int64_t>(1, own.share.size());
  return Loader::create(own);
}

Result<ReadingHashes> read_steps(std::deque<ReadingRank>& ranks, int64_t steps,
                                 const AttachedCache& cache, const EpochHashOptions& options) {
  RunHasher hasher(options.epochs);
  for (int64_t step = 0; step < steps; ++step) {
    for (ReadingRank& one : ranks) {
      for (const layout::Range positions : one.loader.micro_batches()) {
        hasher.add(one.loader, step, one.prefetcher.read(step, positions));
      }
    }
    hasher.end_step();
    cache.finish_step(step);
    if (options.proceed && !options.proceed(step + 1, steps)) return base::cancelled("interrupted");
  }
  return hasher.hashes();
}

}  // namespace internal

std::string to_text(const ReadingWay& way) {
  std::string text = base::counted(way.ranks, "rank") + ", ";
  if (way.workers == 0) return text + "no workers";
  return text + base::counted(way.workers, "worker") + " each, " +
         base::counted(way.prefetch, "step") + " ahead";
}

int64_t steps_of_epochs(const Loader& loader, int64_t epochs) {
  const LoaderOptions& options = loader.options();
  const int64_t most = epochs * (options.num_samples / options.global_batch + 1) + 1;
  const auto steps = std::views::iota(int64_t{0}, most);
  return *std::ranges::partition_point(steps,
                                       [&](int64_t step) { return loader.epoch(step) < epochs; });
}

Result<ReadingHashes> hash_epochs(const Source& source, const EpochHashOptions& options) {
  const int64_t batch = options.loader.global_batch;
  if (options.way.ranks < 1 || options.way.ranks > batch) {
    return base::invalid_argument(
        fmt::format("{} for a global batch of {}, of which each has one or more; take {} or less",
                    base::counted(options.way.ranks, "rank"), base::counted(batch, "sample"),
                    base::counted(batch, "rank")));
  }
  EpochHashOptions whole = options;
  whole.way.ranks = 1;
  HANJI_ASSIGN_OR_RETURN(const Loader all, internal::loader_of_rank(whole, 0));
  const int64_t steps = steps_of_epochs(all, options.epochs);
  const int64_t ahead = options.way.workers == 0 ? 0 : options.way.prefetch;
  const internal::AttachedCache cache(options.cache, source, all, steps, ahead);
  std::deque<internal::ReadingRank> ranks;
  const base::AtEnd end_waits([&] { cache.cancel(); });  // before the threads of ranks are joined
  for (int rank = 0; rank < options.way.ranks; ++rank) {
    HANJI_ASSIGN_OR_RETURN(const Loader own, internal::loader_of_rank(options, rank));
    ranks.emplace_back(source, own, options.way, steps);
  }
  try {
    return internal::read_steps(ranks, steps, cache, options);
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
}

int64_t first_difference(const ReadingHashes& one, const ReadingHashes& other) {
  const auto found = std::ranges::mismatch(one.steps, other.steps);
  const bool is_same = found.in1 == one.steps.end() && found.in2 == other.steps.end();
  return is_same ? -1 : found.in1 - one.steps.begin();
}

}  // namespace hanji::data
