#include "hanji/data/bench_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/cold_file.h"
#include "hanji/base/random.h"
#include "hanji/data/batch.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/internal/image_view.h"
#include "hanji/data/internal/jpeg_reader.h"
#include "hanji/data/prefetcher.h"

namespace hanji::data {
namespace {

/// Reads all bytes: by words and in several sums, so that memory is the limit and not additions that wait for
/// each other.
uint64_t sum_words(std::span<const std::byte> bytes) {
  std::array<uint64_t, 8> sums{};
  while (bytes.size() >= sizeof sums) {
    std::array<uint64_t, 8> words;
    std::memcpy(words.data(), bytes.data(), sizeof words);
    for (size_t i = 0; i < words.size(); ++i) sums[i] += words[i];
    bytes = bytes.subspan(sizeof words);
  }
  for (const std::byte byte : bytes) sums[0] += static_cast<uint64_t>(byte);
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

}  // namespace

namespace internal {

/// A part of a loader and its rates so far.
struct TimedPart {
  std::function<Status()> run;  ///< One sample, or `samples` at once.
  int64_t samples = 1;
  int64_t untimed = 0;  ///< Calls before each round.
  std::optional<double>* rate;
  double share = 1;  ///< Of the seconds of a part.
  std::vector<double> rates = {};
};

/// The parts of one file's loader, each of which goes through the samples by itself.
class FileBench {
 public:
  FileBench(BetonFile file, const BenchFileOptions& options)
      : file_(std::move(file)), options_(options) {
    rates_.num_samples = static_cast<int64_t>(file_.num_samples());
    rates_.threads = options.threads;
  }

  Status add_images(const std::filesystem::path& path);
  Result<FileRates> run();

 private:
  uint64_t next(uint64_t& at) const { return at++ % file_.num_samples(); }
  Status read_values();
  Status decode(bool whole);
  Status make_sample();
  Status make_part(size_t last);
  Status load();
  Status time_round(TimedPart& part) const;

  BetonFile file_;
  BenchFileOptions options_;
  FileRates rates_;
  std::optional<double> read_;
  std::vector<TimedPart> parts_;
  std::vector<std::optional<double>> made_parts_;
  uint64_t read_at_ = 0, decoded_at_ = 0, cropped_at_ = 0, made_at_ = 0;
  std::vector<uint64_t> part_at_;
  uint64_t num_bytes_ = 0;
  uint64_t sum_ = 0;  // of the bytes read, so that they are
  size_t image_field_ = 0;
  std::optional<BetonImages> images_;
  layers::Batch batch_;
  JpegReader jpeg_;
  std::optional<Loader> loader_;
  std::optional<Prefetcher> prefetcher_;
  int64_t step_ = 0;
};

Status FileBench::read_values() {
  const uint64_t sample = next(read_at_);
  for (size_t f = 0; f < file_.fields().size(); ++f) {
    HANJI_ASSIGN_OR_RETURN(const BetonValue value, file_.read(sample, f));
    num_bytes_ += value.bytes.size();
    sum_ += sum_words(value.bytes);
  }
  return {};
}

Status FileBench::decode(bool whole) {
  const uint64_t sample = next(whole ? decoded_at_ : cropped_at_);
  HANJI_ASSIGN_OR_RETURN(const BetonValue value, file_.read(sample, image_field_));
  if (value.mode != BetonImageMode::kJpeg) return {};
  const ImageSize size{value.width, value.height};
  const PixelBox all{0, 0, size.width, size.height};
  const PixelBox box =
      whole ? all : draw_view(options_.stages, size, options_.size, base::mix(1, sample)).crop;
  const Status status = jpeg_.begin(value.bytes, size, box);
  if (!status.ok()) return status.at(fmt::format("sample {}", sample));
  for (int64_t y = 0; y < box.height; ++y) {
    const auto row = jpeg_.next_row();
    if (!row.ok()) return row.status().at(fmt::format("sample {}", sample));
  }
  return {};
}

Status FileBench::make_sample() {
  return images_->read_in_epoch(0, static_cast<int64_t>(next(made_at_)), batch_, 0);
}

Status FileBench::make_part(size_t last) {
  return images_->read_parts(last, {0, static_cast<int64_t>(next(part_at_[last])), &batch_, 0});
}

Status FileBench::load() {
  try {
    prefetcher_->read(step_++, loader_->options().share);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

Status FileBench::add_images(const std::filesystem::path& path) {
  const auto& fields = file_.fields();
  const auto has = [&](BetonType type) {
    return std::ranges::count(fields, type, &BetonField::type) > 0;
  };
  if (!has(BetonType::kRgbImage) || !has(BetonType::kInt)) return {};
  image_field_ = static_cast<size_t>(
      std::ranges::find(fields, BetonType::kRgbImage, &BetonField::type) - fields.begin());
  HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
  HANJI_ASSIGN_OR_RETURN(images_, BetonImages::create(std::move(file), {.stages = options_.stages,
                                                                        .size = options_.size,
                                                                        .validation_fraction = 0}));
  shape_batch(images_->shape(), {0, 1}, batch_);
  const int64_t batch = std::min(options_.batch, rates_.num_samples);
  HANJI_ASSIGN_OR_RETURN(loader_, Loader::create({.seed = 1,
                                                  .num_samples = rates_.num_samples,
                                                  .global_batch = batch,
                                                  .share = {0, batch},
                                                  .micro_batch = batch}));
  prefetcher_.emplace(*images_, *loader_, options_.threads - 1, INT64_MAX);
  HANJI_ASSIGN_OR_RETURN(const BetonValue first, file_.read(0, image_field_));
  if (first.mode == BetonImageMode::kJpeg) {
    parts_.push_back({.run = [this] { return decode(true); }, .rate = &rates_.decoded});
    parts_.push_back({.run = [this] { return decode(false); }, .rate = &rates_.cropped});
  }
  parts_.push_back({.run = [this] { return make_sample(); }, .rate = &rates_.made});
  const size_t num_parts = images_->parts().size();
  made_parts_.resize(num_parts);
  part_at_.resize(num_parts);
  for (size_t i = 0; i < num_parts; ++i) {
    parts_.push_back({.run = [this, i] { return make_part(i); },
                      .rate = &made_parts_[i],
                      .share = 2 / static_cast<double>(num_parts)});
  }
  // What was read ahead while other parts were timed is not counted.
  parts_.push_back(
      {.run = [this] { return load(); }, .samples = batch, .untimed = 2, .rate = &rates_.loaded});
  return {};
}

Status FileBench::time_round(TimedPart& part) const {
  for (int64_t i = 0; i < part.untimed; ++i) HANJI_RETURN_IF_ERROR(part.run());
  const int64_t begin = base::now_ns();
  int64_t count = 0;
  double seconds = 0;
  do {
    HANJI_RETURN_IF_ERROR(part.run());
    count += part.samples;
    seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
  } while (seconds < part.share * options_.seconds);
  part.rates.push_back(static_cast<double>(count) / std::max(seconds, 1e-9));
  return {};
}

/// What is timed before anything maps the file.
struct ColdRates {
  Result<double> bytes_per_second = base::unsupported("it was not read");
  Result<double> loaded = base::unsupported("the file has no labelled images");
};

void add_cold(const ColdRates& cold, FileRates& rates) {
  if (cold.bytes_per_second.ok()) {
    rates.cold_read = *cold.bytes_per_second / std::max(1.0, rates.sample_bytes);
  } else {
    rates.why_not_cold = cold.bytes_per_second.status().message();
  }
  if (cold.loaded.ok()) {
    rates.cold_loaded = *cold.loaded;
  } else if (rates.loaded) {
    rates.why_not_cold = cold.loaded.status().message();
  }
}

/// Samples per second of an epoch whose pages come from the disk, or of its begin.
Result<double> load_cold(const std::filesystem::path& path, const BenchFileOptions& options) {
  constexpr double kMaxResident = 0.02;
  HANJI_ASSIGN_OR_RETURN(const double resident, base::drop_cached_pages(path));
  if (resident > kMaxResident) {
    return base::unsupported(fmt::format(
        "{:.0f} % of the file stays in memory: a process maps it, or its file system is "
        "in memory",
        100 * resident));
  }
  const int64_t begin = base::now_ns();
  const auto elapsed = [begin] { return static_cast<double>(base::now_ns() - begin) * 1e-9; };
  HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
  HANJI_ASSIGN_OR_RETURN(const auto images,
                         BetonImages::create(std::move(file), {.stages = options.stages,
                                                               .size = options.size,
                                                               .validation_fraction = 0}));
  const int64_t batch = std::min(options.batch, images.num_train());
  HANJI_ASSIGN_OR_RETURN(const auto loader, Loader::create({.seed = 1,
                                                            .num_samples = images.num_train(),
                                                            .global_batch = batch,
                                                            .share = {0, batch},
                                                            .micro_batch = batch}));
  const int64_t steps = images.num_train() / batch;
  Prefetcher prefetcher(images, loader, options.threads - 1, steps);
  int64_t done = 0;
  try {
    while (done < steps && elapsed() < options.rounds * options.seconds) {
      prefetcher.read(done++, {0, batch});
    }
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
  return static_cast<double>(done * batch) / std::max(elapsed(), 1e-9);
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<FileRates> FileBench::run() {
  parts_.push_back({.run = [this] { return read_values(); }, .rate = &read_});
  const auto total = static_cast<int64_t>(parts_.size()) * options_.rounds;
  int64_t done = 0;
  for (int round = 0; round < options_.rounds; ++round) {
    for (TimedPart& part : parts_) {
      HANJI_RETURN_IF_ERROR(time_round(part));
      if (options_.proceed && !options_.proceed(++done, total))
        return base::cancelled("interrupted");
    }
  }
  for (const TimedPart& part : parts_) *part.rate = median_of(part.rates);
  rates_.read = read_.value_or(0);
  if (images_) {
    std::vector<double> up_to;
    for (const auto& rate : made_parts_) up_to.push_back(1 / *rate);
    rates_.parts = plan::parts_of_sample(images_->parts(), up_to, 1 / *rates_.made);
  }
  rates_.sample_bytes = static_cast<double>(num_bytes_) / static_cast<double>(read_at_);
  return rates_;
}

}  // namespace internal

std::optional<double> FileRates::times_decode() const {
  if (!decoded || !loaded) return std::nullopt;
  return *loaded / *decoded;
}

std::string FileRates::bottleneck() const {
  constexpr double kHandedOver = 0.7;
  if (!made || !loaded) return "reading: the file has no labelled images";
  const double alone = *made * threads;
  if (*loaded < kHandedOver * alone) {
    return fmt::format(
        "the {} threads: together they load {:.0f} % of what they make alone; cores or "
        "memory are shared",
        threads, 100 * *loaded / alone);
  }
  const plan::SamplePart* longest = plan::longest_part(parts);
  return fmt::format("{}, {:.0f} % of a sample's time{}", longest->name,
                     100 * *made * longest->seconds,
                     longest->name == "decode" ? "; smaller or raw images load faster" : "");
}

Result<FileRates> bench_file(const std::filesystem::path& path, const BenchFileOptions& options) {
  HANJI_RETURN_IF_ERROR(BetonFile::open(path).status());
  // Before anything maps the file: what is mapped stays in memory.
  const internal::ColdRates cold{
      .bytes_per_second = base::read_past_cache(path, options.rounds * options.seconds),
      .loaded = internal::load_cold(path, options)};
  HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
  internal::FileBench bench(std::move(file), options);
  HANJI_RETURN_IF_ERROR(bench.add_images(path));
  HANJI_ASSIGN_OR_RETURN(FileRates rates, bench.run());
  internal::add_cold(cold, rates);
  return rates;
}

}  // namespace hanji::data
