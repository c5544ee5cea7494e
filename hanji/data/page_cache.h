#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"
#include "hanji/data/loader.h"

namespace hanji::base {
class TransferEngine;
}

namespace hanji::data {

/// The pages of a file, as BetonFile::sections() has them.
struct PageCacheOptions {
  std::filesystem::path path;
  uint64_t begin = 0;  ///< Byte of page 0, a multiple of page_bytes.
  uint64_t page_bytes = 0;
  uint64_t num_pages = 0;
  int64_t most_pages = 64;  ///< In memory at a time.
  /// Whether a page was read as it was written. Empty: all are.
  std::function<bool(uint64_t page, std::span<const std::byte> bytes)> is_good = {};
  std::chrono::nanoseconds deadline = std::chrono::seconds(300);  ///< Of a wait for a page.
};

/// A page in memory.
struct CachedPage {
  std::span<const std::byte> bytes;
  bool is_good = true;  ///< As PageCacheOptions::is_good() says.
};

/// Reads the pages of a file past the kernel's cache (O_DIRECT, io_uring) into memory that the ranks of a
/// host share, in the order in which a run needs them: one rank reads, all look.
///
/// The schedule of the run is known, so a page is read before it is needed, stays until its last use in
/// the steps that are under way, and gives way to another if its next use is the furthest.
/// Order   each rank calls finish_step() after it has read its samples of a step; ranks are at most one
///         step apart, and read at most `steps_ahead` steps ahead.
/// Cost    memory_bytes(); one thread on the rank that reads.
/// Thread  any number of threads may call page().
class PageCache {
 public:
  /// Pages that are being read at a time.
  static constexpr int64_t kMaxReads = 4;

  /// Opens the file and makes a ring.
  /// Errors  kUnsupported with the reason where the file system has no O_DIRECT or the kernel refuses
  ///         io_uring; kNotFound.
  static Result<std::shared_ptr<PageCache>> open(const PageCacheOptions& options);
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  /// Of `num_ranks` ranks together.
  int64_t memory_bytes(int num_ranks) const;

  /// Uses `memory`, which all ranks map, and which was zeros before the first of them came.
  void attach(std::byte* memory, int rank, int num_ranks);
  bool is_attached() const { return shared_ != nullptr; }

  /// Reads the pages of `steps` for all ranks of the host, on one of them: `loader` has their shares
  /// together. `pages` has that of each training sample.
  /// Order   check_page_budget() has found that they fit.
  void start_reading(const Loader& loader, std::vector<uint32_t> pages, layout::Range steps,
                     int64_t steps_ahead);

  /// This rank needs no sample of this step or an earlier one any more.
  void finish_step(int64_t step);

  /// Ends every page() that waits, and any later one, with kCancelled.
  void cancel() { is_cancelled_ = true; }

  /// Waits until the page is there. It stays until this rank finishes the step that needs it.
  /// Errors  of the read; kTimeout after the deadline, as for a page that no step needs.
  Result<CachedPage> page(uint64_t page) const;

  /// Reads the first pages as the rank that reads does, kMaxReads at a time, and checks them.
  /// Result  seconds of a page. Cost: kTimedPages pages; memory of kMaxReads.
  /// Errors  of the reads; corrupt for a file that was cut.
  Result<double> seconds_per_page() const;
  static constexpr int64_t kTimedPages = 8;

  /// Bytes read from the file so far; of the rank that reads.
  int64_t bytes_read() const;

  /// Ends the thread and forgets the memory; nobody may wait in page().
  void stop();

 private:
  struct Shared;
  struct Reader;
  PageCache(const PageCacheOptions& options, base::Fd fd,
            std::unique_ptr<base::TransferEngine> engine);

  PageCacheOptions options_;
  base::Fd fd_;
  std::unique_ptr<base::TransferEngine> engine_;  // until the reader takes it
  int rank_ = 0;
  int num_ranks_ = 1;
  std::atomic<bool> is_cancelled_ = false;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Reader> reader_;
};

/// The pages that a run may read at a time.
struct PageBudget {
  int64_t most_pages = 64;
  int64_t steps_ahead = 1;

  /// Steps whose pages are in memory together: of ranks a step apart, each of which reads ahead.
  int64_t steps_together() const { return steps_ahead + 2; }
};

/// That the pages of any steps_together() steps of `steps` that follow each other fit.
/// Cost    once through the order of all of them: some 30 ns per sample.
/// Errors  kInvalidArgument with the step and the number of pages that the run needs.
Status check_page_budget(const Loader& loader, std::span<const uint32_t> pages,
                         const PageBudget& budget, layout::Range steps);

}  // namespace hanji::data
