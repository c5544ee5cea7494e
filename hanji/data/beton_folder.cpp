#include "hanji/data/beton_folder.h"

#include <algorithm>
#include <memory>

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

Result<ImageFiles> list_images(const fs::path& folder) {
  ImageFiles files;
  HANJI_ASSIGN_OR_RETURN(files.paths, base::list_files(folder, base::Recurse::kYes));
  if (files.paths.empty()) {
    return base::not_found(folder.native() +
                           ": no file; name a folder of folders of JPEG or PNG files");
  }
  for (const fs::path& path : files.paths) {
    const fs::path within = path.lexically_relative(folder);
    if (std::distance(within.begin(), within.end()) < 2) {
      return base::invalid_argument(path.native() +
                                    ": a file in no class; move it to a folder of its class");
    }
    // By the bytes of paths, "a-b/" is before "a/": classes are sorted by themselves.
    files.classes.push_back(within.begin()->native());
    files.largest_bytes = std::max(files.largest_bytes, bytes_of_sample(path));
  }
  const std::vector<std::string> of_files = files.classes;
  std::sort(files.classes.begin(), files.classes.end());
  files.classes.erase(std::unique(files.classes.begin(), files.classes.end()), files.classes.end());
  for (const std::string& name : of_files) {
    const auto place = std::lower_bound(files.classes.begin(), files.classes.end(), name);
    files.labels.push_back(place - files.classes.begin());
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
