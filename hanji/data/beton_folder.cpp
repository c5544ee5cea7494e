#include "hanji/data/beton_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/jpeg_header.h"
#include "hanji/data/internal/png_reader.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;

/// The files of a folder of classes.
struct ImageFiles {
  std::vector<fs::path> paths;
  std::vector<int64_t> labels;
  std::vector<std::string> classes;
  uint64_t largest_bytes = 0;
};

bool is_png_file(const fs::path& path) {
  const std::string extension = path.extension().native();
  return extension == ".png" || extension == ".PNG";
}

/// What a file takes as a sample: a PNG becomes rows of RGB.
uint64_t bytes_of_sample(const fs::path& path) {
  if (is_png_file(path)) {
    const auto file = base::MappedFile::open(path);
    const auto size = file.ok() ? internal::parse_png_size(file->bytes())
                                : Result<internal::PngSize>(file.status());
    return size.ok() ? size->rgb_bytes() : 0;  // what is wrong is said when it is read
  }
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

/// The folders in `folder`, links to folders too, sorted by their names' bytes; a file is in no class.
Result<std::vector<std::string>> list_classes(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const auto files, base::list_files(folder));
  if (!files.empty()) {
    return base::invalid_argument(files.front().native() +
                                  ": a file in no class; move it to a folder of its class");
  }
  std::vector<std::string> classes;
  std::error_code error;
  for (const auto& one : fs::directory_iterator(folder, error)) {
    if (one.is_directory(error)) classes.push_back(one.path().filename().native());
  }
  std::ranges::sort(classes);
  return classes;
}

/// As ImageFolder of torchvision does, where the label is the place among all folders.
Status no_empty_class(const fs::path& folder, const std::vector<std::string>& empty) {
  constexpr size_t kMaxShown = 10;
  if (empty.empty()) return {};
  const auto shown = std::span(empty).first(std::min(empty.size(), kMaxShown));
  return base::invalid_argument(fmt::format(
      "{}: no file in the folder{} of class{} {}{}; remove {}, or add images", folder.native(),
      empty.size() == 1 ? "" : "s", empty.size() == 1 ? "" : "es", fmt::join(shown, ", "),
      empty.size() > kMaxShown ? ", ..." : "", empty.size() == 1 ? "it" : "them"));
}

Result<ImageFiles> list_images(const fs::path& folder) {
  ImageFiles files;
  HANJI_ASSIGN_OR_RETURN(files.classes, list_classes(folder));
  std::vector<std::pair<fs::path, int64_t>> images;
  std::vector<std::string> empty;
  for (const std::string& name : files.classes) {
    HANJI_ASSIGN_OR_RETURN(auto of_class, base::list_files(folder / name, base::Recurse::kYes));
    if (of_class.empty()) empty.push_back(name);
    const int64_t label = &name - files.classes.data();
    for (fs::path& path : of_class) images.emplace_back(std::move(path), label);
  }
  HANJI_RETURN_IF_ERROR(no_empty_class(folder, empty));
  if (images.empty()) {
    return base::not_found(folder.native() +
                           ": no file; name a folder of folders of JPEG or PNG files");
  }
  // Of all classes together: by the bytes of paths, "a-b/" is before "a/".
  std::ranges::sort(images, {},
                    [](const auto& one) -> const std::string& { return one.first.native(); });
  for (auto& [path, label] : images) {
    files.largest_bytes = std::max(files.largest_bytes, bytes_of_sample(path));
    files.paths.push_back(std::move(path));
    files.labels.push_back(label);
  }
  return files;
}

Status read_png(const fs::path& path, std::span<const std::byte> stream, int64_t label,
                BetonSample& out) {
  auto rows = internal::decode_png(stream);
  if (!rows.ok()) return rows.status().at(path.native());
  HANJI_ASSIGN_OR_RETURN(const internal::PngSize size, internal::parse_png_size(stream));
  out.bytes = *std::move(rows);
  out.values = {{.mode = BetonImageMode::kRaw,
                 .width = size.width,
                 .height = size.height,
                 .bytes = out.bytes},
                {.integer = label}};
  return {};
}

Status read_image_file(const fs::path& path, int64_t label, BetonSample& out) {
  HANJI_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  if (is_png_file(path)) return read_png(path, file.bytes(), label, out);
  const auto size = internal::parse_jpeg_size(file.bytes());
  if (!size.ok()) return size.status().at(path.native());
  out.bytes.assign(file.bytes().begin(), file.bytes().end());
  out.values = {{.mode = BetonImageMode::kJpeg,
                 .width = size->width,
                 .height = size->height,
                 .bytes = out.bytes},
                {.integer = label}};
  return {};
}

}  // namespace

std::string class_provenance(const std::string& from, const std::vector<std::string>& classes) {
  const base::Json json = {{"images", from}, {"classes", classes}};
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

Result<BetonRecipe> folder_recipe(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(ImageFiles found, list_images(folder));
  const auto files = std::make_shared<const ImageFiles>(std::move(found));
  BetonRecipe recipe{.fields = {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
                     .num_samples = files->paths.size(),
                     .max_sample_bytes = files->largest_bytes,
                     .provenance = class_provenance("folder", files->classes)};
  for (const fs::path& path : files->paths) recipe.key = base::mix(recipe.key, key_of_file(path));
  recipe.read = [files](uint64_t i, BetonSample& out) {
    return read_image_file(files->paths[i], files->labels[i], out);
  };
  return recipe;
}

}  // namespace hanji::data
