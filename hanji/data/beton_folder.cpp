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
#include "hanji/base/units.h"
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
};

/// What is neither a file nor a folder: pipes, links to nothing, and in a class links to folders, which are
/// not followed.
Result<std::vector<fs::path>> list_others(const fs::path& folder,
                                          const std::vector<std::string>& classes) {
  std::vector<fs::path> others;
  std::error_code error, of_one;
  for (const auto& one : fs::directory_iterator(folder, error)) {
    if (!one.is_regular_file(of_one) && !one.is_directory(of_one)) others.push_back(one.path());
  }
  for (const std::string& name : classes) {
    const fs::path of_class = folder / name;
    fs::recursive_directory_iterator it(of_class, error);
    for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      const bool is_folder = it->is_directory(of_one) && !it->is_symlink(of_one);
      if (!it->is_regular_file(of_one) && !is_folder) others.push_back(it->path());
    }
    if (error) return base::from_errno("list " + of_class.native(), error.value());
  }
  std::ranges::sort(others);
  return others;
}

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
  HANJI_ASSIGN_OR_RETURN(const auto others, list_others(folder, files.classes));
  HANJI_RETURN_IF_ERROR(nothing_else(others));
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
    files.largest_bytes = std::max(files.largest_bytes, internal::stored_bytes_of_file(path));
    files.paths.push_back(std::move(path));
    files.labels.push_back(label);
  }
  return files;
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
