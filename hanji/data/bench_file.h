#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/image_stages.h"
#include "hanji/plan/operation_times.h"

namespace hanji::data {

struct BenchFileOptions {
  plan::ImageStages stages;
  int64_t size = 224;    ///< Pixels of a side of a sample.
  int64_t batch = 64;    ///< Samples of a step, at most those of the file.
  int threads = 1;       ///< That load, the caller's too.
  int rounds = 5;        ///< Rates are medians of so many.
  double seconds = 0.2;  ///< Of each rate in each round.
  /// Called after each rate of a round; false ends early.
  std::function<bool(int64_t done, int64_t total)> proceed = {};
};

/// Samples per second of the parts of a loader, each on one thread but `loaded`.
struct FileRates {
  int64_t num_samples = 0;
  double sample_bytes = 0;  ///< Mean of those read.
  int threads = 1;
  double read = 0;  ///< All values of a sample, every byte read from memory once.
  std::optional<double> decoded = {};  ///< libjpeg-turbo's decode of whole images, nothing else.
  std::optional<double> cropped = {};  ///< Decode of what the first stage takes.
  std::optional<double> made = {};     ///< Samples: crop, resize, flip, normalise.
  /// Of a sample that is made: what each part of BetonImages::parts() takes.
  std::vector<plan::SamplePart> parts = {};
  std::optional<double> loaded = {};  ///< Whole batches by all threads.
  std::optional<double> cold_read =
      {};  ///< From the disk past the kernel's cache, 8 MiB at a time.
  std::optional<double> cold_loaded =
      {};                         ///< As `loaded`, of pages that the kernel's cache has not.
  std::string why_not_cold = {};  ///< Where one of them is missing.

  /// `loaded` by `decoded`; nothing without JPEGs.
  std::optional<double> times_decode() const;
  /// The part that bounds the rate, and why.
  std::string bottleneck() const;
};

/// Times the parts of a loader on this machine, interleaved, on the pages that the kernel has; before
/// that, once each, a read of the file past its cache and an epoch after its pages were dropped, for as
/// long as all rounds of a part.
///
/// Files without labelled images are read only.
/// Errors  those of BetonFile and BetonImages, with the sample; kCancelled if it ended early.
Result<FileRates> bench_file(const std::filesystem::path& path, const BenchFileOptions& options);

}  // namespace hanji::data
