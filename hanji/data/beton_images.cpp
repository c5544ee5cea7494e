#include "hanji/data/beton_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/cached_file.h"
#include "hanji/data/internal/image_renderer.h"
#include "hanji/data/internal/pool.h"
#include "hanji/data/internal/sample_mix.h"
#include "hanji/data/internal/timed_stages.h"

namespace hanji::data {
namespace {

// Keep these draws apart from other uses of a seed ("parts", "view" in ASCII).
constexpr uint64_t kParts = 0x7061727473;
constexpr uint64_t kViews = 0x76696577;
constexpr int64_t kMaxSize = 4096;
constexpr int64_t kMaxClasses = int64_t{1} << 20;

}  // namespace

namespace internal {

/// Which samples of a file validate: one of each of `num_runs` equal runs.
struct PartSplit {
  int64_t count = 0;
  int64_t num_runs = 0;

  int64_t begin(int64_t run) const {
    return static_cast<int64_t>(static_cast<__int128>(run) * count / num_runs);
  }
  int64_t validation(int64_t run) const {
    const int64_t length = begin(run + 1) - begin(run);
    const uint64_t word = base::mix(kParts, static_cast<uint64_t>(run));
    return begin(run) + static_cast<int64_t>(word % static_cast<uint64_t>(length));
  }
  int64_t training(int64_t index) const {
    if (num_runs == 0) return index;
    // A run has one training sample less than samples.
    const int64_t rest = count - num_runs;
    auto run = static_cast<int64_t>(static_cast<__int128>(index) * num_runs / rest);
    while (run > 0 && begin(run) - run > index) --run;
    while (run + 1 < num_runs && begin(run + 1) - (run + 1) <= index) ++run;
    const int64_t sample = index + run;
    return sample < validation(run) ? sample : sample + 1;
  }
};

}  // namespace internal

namespace {

bool is_unreadable(const Status& status) {
  return status.code() == Code::kCorrupt || status.code() == Code::kUnsupported;
}

std::optional<size_t> first_of(const BetonFile& file, BetonType type) {
  const auto& fields = file.fields();
  const auto found = std::ranges::find(fields, type, &BetonField::type);
  if (found == fields.end()) return std::nullopt;
  return found - fields.begin();
}

/// Whether one of the first images is a JPEG.
bool has_jpegs(const BetonFile& file, size_t field) {
  constexpr uint64_t kLookedAt = 64;
  for (uint64_t i = 0; i < std::min(kLookedAt, file.num_samples()); ++i) {
    const auto value = file.locate(i, field);
    if (value.ok() && value->mode == BetonImageMode::kJpeg) return true;
  }
  return false;
}

template <class T>
uint64_t add_to(uint64_t checksum, const T& value) {
  return base::mix(checksum, base::xxh3(std::as_bytes(std::span(&value, 1))));
}

}  // namespace

using internal::From;

struct BetonImages::State {
  internal::CachedFile cached;
  BetonImagesOptions options;
  size_t image_field = 0;
  size_t label_field = 0;
  internal::PartSplit split;
  internal::ColourScale colours;
  std::vector<internal::TimedStage> parts;
  int64_t num_classes = 0;
  uint64_t checksum = 0;
  internal::Pool<internal::ImageRenderer> renderers;
  std::atomic<int64_t> fetching_ns = 0;

  State(internal::CachedFile opened, const BetonImagesOptions& chosen)
      : cached(std::move(opened)), options(chosen), colours(chosen.stages) {}

  const BetonFile& file() const { return cached.file(); }

  Status read_labels();
  void add_stages();
  void write_label(int64_t label, layers::Batch& batch, int64_t row) const;
  uint64_t key_of(int64_t epoch, int64_t sample) const {
    const uint64_t key = base::mix(base::mix(options.seed, kViews), static_cast<uint64_t>(epoch));
    return base::mix(key, static_cast<uint64_t>(sample));
  }
  /// What the model sees of a sample in an epoch, by some of the stages.
  internal::ImageView view_of(const plan::ImageStages& stages, int64_t epoch, uint64_t sample,
                              internal::ImageSize size) const;
  /// `view_of`: what is shown of an image of a size.
  template <class ViewOf>
  Status render(int64_t sample, From from, const ViewOf& view_of, layers::Batch& batch,
                int64_t row);
};

/// Without checksums, of the pixels only the size of a JPEG tells something: it is in the row of the table.
Status BetonImages::State::read_labels() {
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < file().num_samples(); ++i) {
    HANJI_ASSIGN_OR_RETURN(const BetonValue label, file().read(i, label_field));
    if (label.integer < 0 || label.integer >= kMaxClasses) {
      return base::corrupt(
          fmt::format("sample {} has the label {}; classes are 0 to {} at most: number them again",
                      i, label.integer, kMaxClasses - 1));
    }
    num_classes = std::max(num_classes, label.integer + 1);
    numbers.push_back(label.integer);
  }
  for (uint64_t i = 0; i < file().sections().num_allocations; ++i) {
    const BetonAllocation one = file().allocation(i);
    numbers.insert(numbers.end(),
                   {static_cast<int64_t>(one.sample), static_cast<int64_t>(one.begin),
                    static_cast<int64_t>(one.size)});
  }
  checksum = base::xxh3(std::as_bytes(std::span(numbers)));
  if (file().has_checksums()) checksum = base::mix(checksum, file().pages_checksum());
  add_stages();
  return {};
}

void BetonImages::State::add_stages() {
  const plan::ImageStages& s = options.stages;
  checksum = add_to(checksum, std::array{options.size, s.translate_pixels, s.cutout_pixels});
  checksum = add_to(checksum, std::array{s.mean, s.deviation});
  checksum = add_to(checksum, std::array{s.flip_probability, options.validation_fraction});
  if (const auto* crop = std::get_if<plan::CenterCrop>(&s.crop)) {
    checksum = add_to(checksum, crop->ratio);
  } else {
    checksum = add_to(checksum, std::get<plan::RandomResizedCrop>(s.crop));
  }
  const std::array newer = {
      s.colour.brightness, s.colour.contrast,   s.colour.saturation, s.colour.gray_probability,
      s.mixup.alpha,       s.mixup.probability, s.cutmix.alpha,      s.cutmix.probability};
  // Files of runs that had none of them keep their checksum.
  if (s.mixes() || std::ranges::any_of(std::span(newer).first(4), std::identity())) {
    checksum = add_to(checksum, newer);
  }
  const std::array newest = {s.vertical_flip_probability, s.colour.hue};
  if (std::ranges::any_of(newest, std::identity())) checksum = add_to(checksum, newest);
}

void BetonImages::State::write_label(int64_t label, layers::Batch& batch, int64_t row) const {
  if (!options.stages.mixes()) {
    batch.targets.mutable_data_ptr<int64_t>()[row] = label;
    return;
  }
  float* weights = batch.targets.mutable_data_ptr<float>() + row * num_classes;
  std::fill_n(weights, num_classes, 0.0F);
  weights[label] = 1;
}

internal::ImageView BetonImages::State::view_of(const plan::ImageStages& stages, int64_t epoch,
                                                uint64_t sample, internal::ImageSize size) const {
  const uint64_t key = key_of(epoch, static_cast<int64_t>(sample));
  internal::ImageView view = internal::draw_view(stages, size, options.size, key);
  if (!options.change_tile) return view;
  view.change = [this, key, sample](uint8_t* pixels, int64_t row_bytes) {
    options.change_tile({pixels, row_bytes, options.size, static_cast<int64_t>(sample), key});
  };
  return view;
}

template <class ViewOf>
Status BetonImages::State::render(int64_t sample, From from, const ViewOf& view_of,
                                  layers::Batch& batch, int64_t row) {
  const auto number = static_cast<uint64_t>(sample);
  HANJI_ASSIGN_OR_RETURN(const BetonValue label, file().read(number, label_field));
  const bool was_verified = file().is_verified(number);
  const int64_t begun = base::now_ns();
  HANJI_ASSIGN_OR_RETURN(const BetonValue value, cached.read(number, image_field, from));
  const int64_t waited_ns = base::now_ns() - begun;
  const internal::StoredImage image{.size = {value.width, value.height},
                                    .is_jpeg = value.mode == BetonImageMode::kJpeg,
                                    .bytes = value.bytes,
                                    .is_near = !was_verified && file().is_verified(number)};
  float* out = batch.inputs.mutable_data_ptr<float>() + row * 3 * options.size * options.size;
  auto renderer = renderers.take();
  const Status status =
      renderer->render(image, view_of(number, image.size), colours, options.size, out);
  fetching_ns += waited_ns + renderer->take_waited_ns();
  renderers.give_back(std::move(renderer));
  if (!status.ok()) return status.at(fmt::format("sample {}", sample));
  write_label(label.integer, batch, row);
  return {};
}

Result<BetonImages> BetonImages::create(BetonFile file, const BetonImagesOptions& options) {
  const auto image = first_of(file, BetonType::kRgbImage), label = first_of(file, BetonType::kInt);
  if (!image || !label) {
    return base::unsupported(
        "a file of labelled images has an rgb_image and an int field; `hanji data info` lists the "
        "fields");
  }
  const double fraction = options.validation_fraction;
  const auto count = static_cast<int64_t>(file.num_samples());
  const auto train = static_cast<int64_t>(std::floor(static_cast<double>(count) * (1 - fraction)));
  const bool is_in_range = fraction >= 0 && fraction < 1 && options.size >= 1;
  if (!is_in_range || options.size > kMaxSize || train < 1 || (fraction > 0 && train == count)) {
    return base::invalid_argument(
        fmt::format("{} images of {} pixels a side leave a part without any at a "
                    "validation_fraction of {}; more images, or 1 to {} pixels are needed",
                    count, options.size, fraction, kMaxSize));
  }
  HANJI_ASSIGN_OR_RETURN(auto cached,
                         internal::CachedFile::create(std::move(file), options.cached_pages));
  auto state = std::make_unique<State>(std::move(cached), options);
  state->image_field = *image;
  state->label_field = *label;
  state->split = {count, count - train};
  state->parts = internal::timed_stages(
      options.stages,
      {.decodes = has_jpegs(state->file(), *image), .changes_tile = !!options.change_tile});
  HANJI_RETURN_IF_ERROR(state->read_labels());
  return BetonImages(std::move(state));
}

BetonImages::BetonImages(std::unique_ptr<State> state) : state_(std::move(state)) {}
BetonImages::BetonImages(BetonImages&&) noexcept = default;
BetonImages& BetonImages::operator=(BetonImages&&) noexcept = default;
BetonImages::~BetonImages() = default;

uint64_t BetonImages::checksum() const { return state_->checksum; }
const std::shared_ptr<PageCache>& BetonImages::cache() const { return state_->cached.cache(); }
int64_t BetonImages::num_classes() const { return state_->num_classes; }

int64_t BetonImages::count(Part part) const {
  const internal::PartSplit& split = state_->split;
  return part == Part::kTrain ? split.count - split.num_runs : split.num_runs;
}

int64_t BetonImages::sample_of(Part part, int64_t index) const {
  const internal::PartSplit& split = state_->split;
  return part == Part::kTrain ? split.training(index) : split.validation(index);
}

std::vector<uint32_t> BetonImages::train_pages() const {
  const std::vector<uint32_t> of_sample = state_->file().sample_pages(state_->image_field);
  std::vector<uint32_t> pages;
  for (int64_t i = 0; i < num_train(); ++i) pages.push_back(of_sample[sample_of(Part::kTrain, i)]);
  return pages;
}

Result<std::vector<double>> BetonImages::weights(std::string_view name) const {
  const bool is_balanced = name == "balanced";
  size_t field = state_->label_field;
  if (!is_balanced) {
    HANJI_ASSIGN_OR_RETURN(field, state_->file().find_field(name));
    const BetonType type = state_->file().fields()[field].type;
    if (type != BetonType::kFloat) {
      return base::invalid_argument(fmt::format(
          "field '{}' is of type {}, but weights are of type float", name, name_of(type)));
    }
  }
  std::vector<double> weights;
  std::vector<double> counts(static_cast<size_t>(num_classes()), 0);
  for (int64_t i = 0; i < num_train(); ++i) {
    const auto sample = static_cast<uint64_t>(sample_of(Part::kTrain, i));
    HANJI_ASSIGN_OR_RETURN(const BetonValue value, state_->file().read(sample, field));
    weights.push_back(is_balanced ? static_cast<double>(value.integer) : value.number);
    if (is_balanced) ++counts[static_cast<size_t>(value.integer)];
  }
  for (double& weight : weights) {
    if (is_balanced) weight = 1 / counts[static_cast<size_t>(weight)];
  }
  return weights;
}

SampleShape BetonImages::shape() const {
  const int64_t size = state_->options.size;
  SampleShape shape{.inputs = {3, size, size}, .dtype = c10::ScalarType::Float, .targets = {}};
  if (!mixes_pairs()) return shape;
  shape.targets = {num_classes()};
  shape.target_dtype = c10::ScalarType::Float;
  shape.classes = num_classes();
  return shape;
}

template <class ReadOne>
Status BetonImages::read_or_skip(Part part, int64_t index, const ReadOne& read_one) const {
  HANJI_RETURN_IF_ERROR(check_index(part, index));
  Status first;
  for (int64_t tried = 0; tried < count(part); ++tried) {
    const From from = part == Part::kTrain && tried == 0 ? From::kCache : From::kFile;
    const Status status = read_one(sample_of(part, (index + tried) % count(part)), from);
    const bool is_skipped =
        is_unreadable(status) && state_->options.corrupt == plan::CorruptPolicy::kSkip;
    if (!is_skipped) return status;
    if (first.ok()) first = status;
    if (state_->options.report_skipped) state_->options.report_skipped(status);
  }
  return first;
}

Status BetonImages::read(Part part, int64_t index, layers::Batch& batch, int64_t row) const {
  const auto view_of = [&](uint64_t, internal::ImageSize size) {
    return internal::central_view(state_->options.stages, size);
  };
  return read_or_skip(part, index, [&](int64_t sample, From) {
    return state_->render(sample, From::kFile, view_of, batch, row);
  });
}

Status BetonImages::read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                                  int64_t row) const {
  const auto view_of = [&](uint64_t sample, internal::ImageSize size) {
    return state_->view_of(state_->options.stages, epoch, sample, size);
  };
  return read_or_skip(Part::kTrain, index, [&](int64_t sample, From from) {
    return state_->render(sample, from, view_of, batch, row);
  });
}

void BetonImages::expect(int64_t index) const {
  if (index < 0 || index >= num_train()) return;
  const auto sample = static_cast<uint64_t>(sample_of(Part::kTrain, index));
  state_->cached.expect(sample, state_->image_field);
}

std::vector<std::string> BetonImages::parts() const {
  std::vector<std::string> names;
  for (const internal::TimedStage& part : state_->parts) names.push_back(part.name);
  return names;
}

Status BetonImages::read_parts(size_t last, const SampleRow& into) const {
  const internal::TimedStage& part = state_->parts.at(last);
  const auto view_of = [&](uint64_t sample, internal::ImageSize size) {
    internal::ImageView view = state_->view_of(part.stages, into.epoch, sample, size);
    view.until = part.until;
    if (!part.changes_tile) view.change = {};
    return view;
  };
  return read_or_skip(Part::kTrain, into.index, [&](int64_t sample, From from) {
    return state_->render(sample, from, view_of, *into.batch, into.row);
  });
}

std::optional<double> BetonImages::fetching_seconds() const {
  return static_cast<double>(state_->fetching_ns) * 1e-9;
}

bool BetonImages::mixes_pairs() const { return state_->options.stages.mixes(); }

void BetonImages::mix(const SampleRow& even, const SampleRow& odd) const {
  const BetonImagesOptions& options = state_->options;
  const auto mix_of = [&](const SampleRow& one) {
    const int64_t sample = sample_of(Part::kTrain, one.index);
    return internal::draw_mix(options.stages, options.size, state_->key_of(one.epoch, sample));
  };
  const auto pixels_of = [&](const SampleRow& one) {
    return one.batch->inputs.mutable_data_ptr<float>() + one.row * 3 * options.size * options.size;
  };
  const auto labels_of = [&](const SampleRow& one) {
    return one.batch->targets.mutable_data_ptr<float>() + one.row * num_classes();
  };
  const internal::SampleMix of_even = mix_of(even), of_odd = mix_of(odd);
  internal::mix_samples(of_even, of_odd, options.size, pixels_of(even), pixels_of(odd));
  internal::mix_rows(of_even.label, of_odd.label, num_classes(), labels_of(even), labels_of(odd));
}

}  // namespace hanji::data
