#include "hanji/data/beton_binaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/base/random.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

constexpr uint64_t kCifarSide = 32;
constexpr uint64_t kCifarImage = 3 * kCifarSide * kCifarSide;
constexpr uint32_t kIdxLabels = 0x801;  // unsigned bytes, one dimension
constexpr uint32_t kIdxImages = 0x803;
constexpr uint64_t kMaxSide = 1024;

/// Images as planes or gray, and where the label of each is.
struct BinaryImages {
  uint64_t count = 0;
  uint16_t width = 0;
  uint16_t height = 0;
  uint64_t planes = 0;  ///< 3, or 1: gray.
  Bytes images;         ///< From the first image on.
  uint64_t image_step = 0;
  Bytes labels;
  uint64_t label_step = 0;
};

uint32_t big_endian(Bytes bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

bool is_idx(Bytes bytes, uint32_t magic) {
  return bytes.size() >= 8 && big_endian(bytes, 0) == magic;
}

Status no_format(const fs::path& path, size_t size) {
  return base::corrupt(fmt::format(
      "{}: {} bytes are neither records of CIFAR-10 (3073) or CIFAR-100 (3074) nor an IDX file of "
      "bytes; unpack the file, or name another",
      path.native(), size));
}

/// A set of CIFAR: its records have a label, or one of a class and one of the class within it.
struct Cifar {
  std::string_view name;
  std::vector<uint8_t> num_classes;  ///< Of each label.
};

const std::vector<Cifar>& cifars() {
  static const std::vector<Cifar> all = {{"CIFAR-10", {10}}, {"CIFAR-100", {20, 100}}};
  return all;
}

Status check_labels(const fs::path& path, const Cifar& cifar, Bytes bytes) {
  const uint64_t num_labels = cifar.num_classes.size(), record = num_labels + kCifarImage;
  for (uint64_t i = 0; i < bytes.size() / record; ++i) {
    for (uint64_t at = 0; at < num_labels; ++at) {
      const auto label = static_cast<uint8_t>(bytes[i * record + at]);
      if (label < cifar.num_classes[at]) continue;
      return base::corrupt(
          fmt::format("{}: record {} has the label {}, where {} has 0 to {}; copy "
                      "the file again, or name another",
                      path.native(), i, label, cifar.name, cifar.num_classes[at] - 1));
    }
  }
  return {};
}

Result<BinaryImages> cifar_of(const fs::path& path, Bytes bytes) {
  for (const Cifar& cifar : cifars()) {
    const uint64_t num_labels = cifar.num_classes.size(), record = num_labels + kCifarImage;
    if (bytes.empty() || bytes.size() % record != 0) continue;
    HANJI_RETURN_IF_ERROR(check_labels(path, cifar, bytes));
    return BinaryImages{.count = bytes.size() / record,
                        .width = kCifarSide,
                        .height = kCifarSide,
                        .planes = 3,
                        .images = bytes.subspan(num_labels),
                        .image_step = record,
                        .labels = bytes.subspan(num_labels - 1),
                        .label_step = record};
  }
  return no_format(path, bytes.size());
}

Result<BinaryImages> idx_of(const fs::path& path, Bytes images, Bytes labels) {
  const auto damaged = [&](std::string_view what) {
    return base::corrupt(fmt::format("{}: {}; copy the files again", path.native(), what));
  };
  if (images.size() < 16) return damaged("an IDX header that is cut");
  const uint64_t count = big_endian(images, 4), height = big_endian(images, 8),
                 width = big_endian(images, 12);
  const bool fits = height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide;
  if (count == 0 || !fits || images.size() - 16 != count * height * width) {
    return damaged(fmt::format("{} bytes of {} images of {} x {} (at most {} a side)",
                               images.size(), count, width, height, kMaxSide));
  }
  if (big_endian(labels, 4) != count || labels.size() - 8 != count) {
    return damaged(fmt::format("{} labels in {} bytes for {} images", big_endian(labels, 4),
                               labels.size(), count));
  }
  return BinaryImages{.count = count,
                      .width = static_cast<uint16_t>(width),
                      .height = static_cast<uint16_t>(height),
                      .planes = 1,
                      .images = images.subspan(16),
                      .image_step = width * height,
                      .labels = labels.subspan(8),
                      .label_step = 1};
}

/// Files of images with those of labels, each kind in its order.
Result<std::vector<BinaryImages>> parse_pairs(std::span<const fs::path> paths,
                                              std::span<const base::MappedFile> files,
                                              const std::vector<size_t>& images,
                                              const std::vector<size_t>& labels) {
  if (images.size() != labels.size() || images.size() + labels.size() != files.size()) {
    return base::invalid_argument(fmt::format(
        "{} IDX files of images and {} of labels among {} files; name a file of labels for each of "
        "images, and CIFAR's apart",
        images.size(), labels.size(), files.size()));
  }
  std::vector<BinaryImages> all;
  for (size_t i = 0; i < images.size(); ++i) {
    HANJI_ASSIGN_OR_RETURN(
        const BinaryImages pair,
        idx_of(paths[images[i]], files[images[i]].bytes(), files[labels[i]].bytes()));
    all.push_back(pair);
  }
  return all;
}

Result<std::vector<BinaryImages>> parse_files(std::span<const fs::path> paths,
                                              std::span<const base::MappedFile> files) {
  std::vector<size_t> images, labels;
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_idx(files[i].bytes(), kIdxImages)) images.push_back(i);
    if (is_idx(files[i].bytes(), kIdxLabels)) labels.push_back(i);
  }
  if (!images.empty() || !labels.empty()) return parse_pairs(paths, files, images, labels);
  std::vector<BinaryImages> all;
  for (size_t i = 0; i < files.size(); ++i) {
    HANJI_ASSIGN_OR_RETURN(const BinaryImages one, cifar_of(paths[i], files[i].bytes()));
    if (i > 0 && one.label_step != all.front().label_step) {
      return base::invalid_argument(
          fmt::format("{} and {}: records of CIFAR-10 and of CIFAR-100, whose labels are of other "
                      "classes; make a file of each",
                      paths[0].native(), paths[i].native()));
    }
    all.push_back(one);
  }
  return all;
}

Status read_binary_image(const BinaryImages& from, uint64_t i, BetonSample& out) {
  const uint64_t pixels = uint64_t{from.width} * from.height;
  const Bytes image = from.images.subspan(i * from.image_step, from.planes * pixels);
  out.bytes.resize(3 * pixels);
  for (uint64_t c = 0; c < 3; ++c) {
    const Bytes plane = image.subspan(c % from.planes * pixels, pixels);
    for (uint64_t at = 0; at < pixels; ++at) out.bytes[3 * at + c] = plane[at];
  }
  out.values = {{.width = from.width, .height = from.height, .bytes = out.bytes},
                {.integer = static_cast<int64_t>(from.labels[i * from.label_step])}};
  return {};
}

}  // namespace

Result<BetonRecipe> binary_recipe(std::span<const fs::path> paths) {
  const auto files = std::make_shared<std::vector<base::MappedFile>>();
  BetonRecipe recipe{.fields = {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
                     .provenance = R"({"images":"binary files"})"};
  for (const fs::path& path : paths) {
    HANJI_ASSIGN_OR_RETURN(auto file, base::MappedFile::open(path));
    files->push_back(std::move(file));
    recipe.key = base::mix(recipe.key, key_of_file(path));
  }
  HANJI_ASSIGN_OR_RETURN(const auto all, parse_files(paths, *files));
  for (const BinaryImages& one : all) {
    recipe.num_samples += one.count;
    recipe.max_sample_bytes =
        std::max(recipe.max_sample_bytes, uint64_t{3} * one.width * one.height);
  }
  recipe.read = [files, all](uint64_t i, BetonSample& out) {
    auto of = all.begin();
    for (; i >= of->count; ++of) i -= of->count;
    return read_binary_image(*of, i, out);
  };
  return recipe;
}

}  // namespace hanji::data
