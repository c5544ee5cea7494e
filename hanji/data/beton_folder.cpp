#include "hanji/data/beton_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/base/units.h"
#include "hanji/data/data_folder.h"
#include "hanji/data/internal/encoded_image.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;

/// The files of a folder of classes.
struct ImageFiles {
  std::vector<fs::path> paths;
  std::vector<int64_t> labels;
  std::vector<std::string> classes;
  uint64_t largest_bytes = 0;
  fs::path largest = {};
  std::vector<std::string> notes = {};
};

Status nothing_else(const std::vector<fs::path>& others) {
  constexpr size_t kMaxShown = 10;
  if (others.empty()) return {};
  std::string names;
  for (const fs::path& one : std::span(others).first(std::min(others.size(), kMaxShown))) {
    names += "\n  " + one.native();
  }
  return base::invalid_argument(fmt::format(
      "{} in the folder that {} neither a file nor a folder; remove {}, or put images in "
      "the place:{}{}",
      base::counted(std::ssize(others), "name"), others.size() == 1 ? "is" : "are",
      others.size() == 1 ? "it" : "them", names, others.size() > kMaxShown ? "\n  ..." : ""));
}

/// A folder of classes: their folders, links to folders too.
Result<DataFolder> list_classes(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(DataFolder classes, list_data(folder));
  if (classes.files.empty()) return classes;
  return base::invalid_argument(classes.files.front().native() +
                                ": a file in no class; move it to a folder of its class");
}

/// What was left out, behind a message about what is missing.
std::string in_brackets(const std::vector<std::string>& notes) {
  return notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; "));
}

/// As ImageFolder of torchvision does, where the label is the place among all folders.
Status no_empty_class(const fs::path& folder, const std::vector<std::string>& empty,
                      const std::vector<std::string>& notes) {
  constexpr size_t kMaxShown = 10;
  if (empty.empty()) return {};
  const auto shown = std::span(empty).first(std::min(empty.size(), kMaxShown));
  return base::invalid_argument(
      fmt::format("{}: no file in the folder{} of class{} {}{}{}; remove {}, or add images",
                  folder.native(), empty.size() == 1 ? "" : "s", empty.size() == 1 ? "" : "es",
                  fmt::join(shown, ", "), empty.size() > kMaxShown ? ", ..." : "",
                  in_brackets(notes), empty.size() == 1 ? "it" : "them"));
}

/// Pipes, links to nothing, and in a class links to folders, which are not followed, are mistakes.
Result<ImageFiles> list_images(const fs::path& folder) {
  ImageFiles files;
  HANJI_ASSIGN_OR_RETURN(const DataFolder classes, list_classes(folder));
  std::vector<fs::path> others = classes.others;
  std::vector<fs::path> left_out = classes.left_out;
  std::vector<std::pair<fs::path, int64_t>> images;
  std::vector<std::string> empty;
  for (const fs::path& one : classes.folders) {
    HANJI_ASSIGN_OR_RETURN(DataFolder of_class, list_data(one, base::Recurse::kYes));
    files.classes.push_back(one.filename().native());
    if (of_class.files.empty()) empty.push_back(files.classes.back());
    const int64_t label = std::ssize(files.classes) - 1;
    for (fs::path& path : of_class.files) images.emplace_back(std::move(path), label);
    others.insert(others.end(), of_class.others.begin(), of_class.others.end());
    others.insert(others.end(), of_class.folders.begin(), of_class.folders.end());
    left_out.insert(left_out.end(), of_class.left_out.begin(), of_class.left_out.end());
  }
  std::ranges::sort(others);
  HANJI_RETURN_IF_ERROR(nothing_else(others));
  note_metadata(files.notes, left_out);
  HANJI_RETURN_IF_ERROR(no_empty_class(folder, empty, files.notes));
  if (images.empty()) {
    return base::not_found(
        fmt::format("{}: no file{}; name a folder of folders of JPEG or PNG files", folder.native(),
                    in_brackets(files.notes)));
  }
  // Of all classes together: by the bytes of paths, "a-b/" is before "a/".
  std::ranges::sort(images, {},
                    [](const auto& one) -> const std::string& { return one.first.native(); });
  for (auto& [path, label] : images) {
    const uint64_t bytes = internal::stored_bytes_of_file(path);
    if (bytes > files.largest_bytes) files.largest = path;
    files.largest_bytes = std::max(files.largest_bytes, bytes);
    files.paths.push_back(std::move(path));
    files.labels.push_back(label);
  }
  return files;
}

}  // namespace

std::string class_provenance(const std::string& from, const std::vector<std::string>& classes) {
  const base::Json json = {{"images", from}, {"classes", classes}};
  return base::dump(json);
}

Result<BetonRecipe> folder_recipe(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(ImageFiles found, list_images(folder));
  const auto files = std::make_shared<const ImageFiles>(std::move(found));
  BetonRecipe recipe{.fields = {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
                     .num_samples = files->paths.size(),
                     .max_sample_bytes = files->largest_bytes,
                     .largest = files->largest.native() + ", field image",
                     .provenance = class_provenance("folder", files->classes),
                     .notes = files->notes};
  for (const fs::path& path : files->paths) recipe.key = base::mix(recipe.key, key_of_file(path));
  recipe.read = [files, most = std::max(kMinPageBytes, files->largest_bytes)](uint64_t i,
                                                                              BetonSample& out) {
    out.bytes.clear();
    HANJI_ASSIGN_OR_RETURN(BetonValue image,
                           internal::store_image_file(files->paths[i], most, out.bytes));
    image.bytes = out.bytes;
    out.values = {image, {.integer = files->labels[i]}};
    return Status();
  };
  return recipe;
}

}  // namespace hanji::data
