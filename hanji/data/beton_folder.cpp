#include "hanji/data/beton_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/jpeg_header.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLeastPageBytes = uint64_t{8} << 20;
constexpr size_t kMaxListed = 10;

/// The files of a folder of classes.
struct ImageFiles {
  std::vector<fs::path> paths;
  std::vector<int64_t> labels;
  std::vector<std::string> classes;
  uint64_t largest_bytes = 0;
};

Result<ImageFiles> list_images(const fs::path& folder) {
  ImageFiles files;
  HANJI_ASSIGN_OR_RETURN(files.paths, base::list_files(folder, base::Recurse::kYes));
  if (files.paths.empty()) {
    return base::not_found(folder.native() + ": no file; name a folder of folders of JPEG files");
  }
  for (const fs::path& path : files.paths) {
    const fs::path within = path.lexically_relative(folder);
    if (std::distance(within.begin(), within.end()) < 2) {
      return base::invalid_argument(path.native() +
                                    ": a file in no class; move it to a folder of its class");
    }
    // By the bytes of paths, "a-b/" is before "a/": classes are sorted by themselves.
    files.classes.push_back(within.begin()->native());
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (!error) files.largest_bytes = std::max(files.largest_bytes, bytes);
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

Status append_image(const fs::path& path, int64_t label, BetonWriter& writer) {
  HANJI_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const auto size = internal::parse_jpeg_size(file.bytes());
  if (!size.ok()) return size.status().at(path.native());
  const BetonValue values[] = {{.mode = BetonImageMode::kJpeg,
                                .width = size->width,
                                .height = size->height,
                                .bytes = file.bytes()},
                               {.integer = label}};
  return writer.append(values);
}

/// Only what a file's own content causes is collected.
bool is_of_one_file(const Status& status) {
  return status.code() == Code::kCorrupt || status.code() == Code::kUnsupported;
}

std::string folder_provenance(const std::vector<std::string>& classes) {
  const base::Json json = {{"images", "folder"}, {"classes", classes}};
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

}  // namespace

Result<FolderSummary> write_image_folder(const fs::path& folder, const fs::path& out,
                                         const std::function<void(int64_t, int64_t)>& progress) {
  std::error_code error;
  if (fs::exists(out, error)) {
    return base::invalid_argument(out.native() + ": exists; name another file, or remove it");
  }
  HANJI_ASSIGN_OR_RETURN(const ImageFiles files, list_images(folder));
  HANJI_ASSIGN_OR_RETURN(
      BetonWriter writer,
      BetonWriter::create(
          out, {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
          {.num_samples = files.paths.size(),
           .page_bytes = std::max(kLeastPageBytes, std::bit_ceil(files.largest_bytes)),
           .provenance = folder_provenance(files.classes)}));
  const auto total = static_cast<int64_t>(files.paths.size());
  std::string mistakes;
  size_t num_mistakes = 0;
  for (size_t i = 0; i < files.paths.size(); ++i) {
    const Status status = append_image(files.paths[i], files.labels[i], writer);
    if (!status.ok() && !is_of_one_file(status)) return status;
    if (!status.ok() && ++num_mistakes <= kMaxListed) mistakes += "\n  " + status.message();
    if (progress) progress(static_cast<int64_t>(i) + 1, total);
  }
  if (num_mistakes > 0) {
    return base::corrupt(fmt::format("{}: {} of {} files cannot be images of the set:{}",
                                     folder.native(), num_mistakes, total, mistakes));
  }
  HANJI_RETURN_IF_ERROR(writer.finish());
  return FolderSummary{.num_images = total, .classes = files.classes};
}

}  // namespace hanji::data
