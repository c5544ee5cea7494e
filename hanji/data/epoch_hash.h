#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/data/loader.h"

namespace hanji::data {

class PageCache;
class Source;

/// One way to read the samples of a run: it should change no byte of them.
struct ReadingWay {
  int ranks = 1;         ///< Data coordinates, each of which has its share of every global batch.
  int workers = 0;       ///< Threads of each rank that read besides its own.
  int64_t prefetch = 1;  ///< Steps that they read ahead; without them none are.
  friend bool operator==(const ReadingWay&, const ReadingWay&) = default;
};

/// "2 ranks, 1 worker each, 4 steps ahead", "1 rank, no workers".
std::string to_text(const ReadingWay& way);

/// Hashes of what ranks read, in the order of the run: position by position of every global batch, the
/// bytes of a sample's inputs and then of its targets.
struct ReadingHashes {
  std::vector<uint64_t> epochs;  ///< XXH3-64 of the samples of each epoch.
  std::vector<uint64_t> steps;   ///< Hash of each global batch, to find the first that differs.
  int64_t num_samples = 0;
};

struct EpochHashOptions {
  LoaderOptions loader;  ///< Its share and, at 0, micro_batch are those of the ranks.
  ReadingWay way;
  int64_t epochs = 1;  ///< From the first one; a sample counts in the epoch that it is read in.
  /// Where samples are read from its pages, which nobody has attached; null: no cache.
  PageCache* cache = nullptr;
  /// Called after each step; false ends early.
  std::function<bool(int64_t done, int64_t total)> proceed = {};
};

/// Steps of a run in which `epochs` epochs are read.
int64_t steps_of_epochs(const Loader& loader, int64_t epochs);

/// Reads epochs as `way.ranks` ranks of one run do, each with a Loader of its share and a Prefetcher of its own, and
/// hashes their batches.
///
/// Result  the same for every way, or a sample depends on who reads it when.
/// Cost    reads all samples once; the batches of (prefetch + 1) steps.
/// Errors  those of Loader::create() and of the first sample that cannot be read; kInvalidArgument for more ranks
///         than samples of a global batch; kCancelled if it ended early.
Result<ReadingHashes> hash_epochs(const Source& source, const EpochHashOptions& options);

/// The first step whose bytes differ; -1 if none does.
int64_t first_difference(const ReadingHashes& one, const ReadingHashes& other);

}  // namespace hanji::data
