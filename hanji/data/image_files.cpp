#include "hanji/data/image_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/folder_lock.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/data/internal/png_writer.h"
#include "hanji/data/internal/samples_ahead.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDoneFile = ".done";  // "KEY SAMPLES", of an unfinished folder
constexpr int64_t kNoteEvery = 2'000'000'000;    // ns

/// The images of a file as the bytes of files.
struct ImagesToWrite {
  BetonFile file;
  size_t image = 0;
  std::optional<size_t> label = {};
  std::vector<std::string> classes = {};

  explicit ImagesToWrite(BetonFile opened) : file(std::move(opened)) {
    const auto& fields = file.fields();
    const auto place = [&](BetonType type) {
      return static_cast<size_t>(std::ranges::find(fields, type, &BetonField::type) -
                                 fields.begin());
    };
    image = place(BetonType::kRgbImage);
    if (place(BetonType::kInt) < fields.size()) label = place(BetonType::kInt);
    const auto json = base::parse_json(file.provenance());
    if (!json.ok() || !json->is_object() || !json->contains("classes")) return;
    for (const auto& one : (*json)["classes"]) {
      classes.push_back(one.is_string() ? one.get<std::string>() : "");
    }
  }

  /// A name that leads out of the folder, or is hidden, is that of the number.
  std::string folder_of(int64_t number) const {
    const auto place = static_cast<size_t>(number);
    if (number < 0 || place >= classes.size()) return std::to_string(number);
    const std::string& name = classes[place];
    const bool is_plain = !name.empty() && name.size() <= 200 && name.front() != '.' &&
                          name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
    return is_plain ? name : std::to_string(number);
  }

  Status read(uint64_t sample, BetonSample& out) const {
    out.values.assign(2, {});
    HANJI_ASSIGN_OR_RETURN(out.values[0], file.read(sample, image));
    if (label) {
      HANJI_ASSIGN_OR_RETURN(out.values[1], file.read(sample, *label));
    }
    BetonValue& value = out.values[0];
    if (value.mode == BetonImageMode::kJpeg) return {};
    const auto* rgb = reinterpret_cast<const uint8_t*>(value.bytes.data());
    HANJI_ASSIGN_OR_RETURN(const std::string png, internal::encode_png({rgb, value.bytes.size()},
                                                                       value.width, value.height));
    const auto bytes = std::as_bytes(std::span(png));
    out.bytes.assign(bytes.begin(), bytes.end());
    value.bytes = out.bytes;
    return {};
  }
};

Status write_file(const fs::path& path, std::span<const std::byte> bytes) {
  HANJI_RETURN_IF_ERROR(base::make_directories(path.parent_path()));
  HANJI_ASSIGN_OR_RETURN(auto out, base::OutputFile::open(path));
  HANJI_RETURN_IF_ERROR(out.append(bytes));
  return out.close();
}

/// A folder that is not whole yet. Errors name the whole one.
class UnfinishedFolder {
 public:
  static Result<UnfinishedFolder> open(const fs::path& folder, uint64_t key) {
    const fs::path name = folder.has_filename() ? folder : folder.parent_path();
    fs::path part = name.parent_path() / fmt::format(".{}.part", name.filename().string());
    HANJI_RETURN_IF_ERROR(base::make_directories(part).at(name.native()));
    auto lock = base::FolderLock::take(part, base::Deadline::after(std::chrono::nanoseconds(0)));
    if (!lock.ok()) return lock.status().at(name.native());
    UnfinishedFolder one(name, std::move(part), *std::move(lock), key);
    HANJI_RETURN_IF_ERROR(one.read_done());
    return one;
  }

  uint64_t num_done() const { return num_done_; }

  Status write(const fs::path& within, std::span<const std::byte> bytes) const {
    return write_file(part_ / within, bytes).at(folder_.native());
  }
  Status note_done(uint64_t done) const {
    const std::string text = fmt::format("{} {}", key_, done);
    return base::write_file_atomic(part_ / kDoneFile, text).at(folder_.native());
  }
  Status finish() const {
    HANJI_RETURN_IF_ERROR(base::remove_tree(part_ / kDoneFile).at(folder_.native()));
    return base::rename_and_sync(part_, folder_).at(folder_.native());
  }

 private:
  UnfinishedFolder(fs::path folder, fs::path part, base::FolderLock lock, uint64_t key)
      : folder_(std::move(folder)), part_(std::move(part)), lock_(std::move(lock)), key_(key) {}

  Status read_done() {
    std::error_code error;
    if (!fs::exists(part_ / kDoneFile, error)) return {};
    HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(part_ / kDoneFile, 100));
    const std::string begin = fmt::format("{} ", key_);
    if (!text.starts_with(begin)) {
      return base::invalid_argument(
          part_.native() +
          ": interrupted images of another file; finish them by their own "
          "command, or remove this folder");
    }
    std::from_chars(text.data() + begin.size(), text.data() + text.size(), num_done_);
    return {};
  }

  fs::path folder_;
  fs::path part_;
  base::FolderLock lock_;
  uint64_t key_;
  uint64_t num_done_ = 0;
};

fs::path path_of_image(const ImagesToWrite& images, uint64_t sample, const BetonSample& read) {
  const size_t digits = std::to_string(images.file.num_samples() - 1).size();
  const bool is_jpeg = read.values[0].mode == BetonImageMode::kJpeg;
  const std::string name = fmt::format("{:0{}}.{}", sample, digits, is_jpeg ? "jpg" : "png");
  return images.label ? fs::path(images.folder_of(read.values[1].integer)) / name : fs::path(name);
}

/// Result: whether it was not interrupted; `done` counts.
Result<bool> write_all(const ImagesToWrite& images, const BetonRecipe& recipe,
                       const MakeBetonOptions& options, const UnfinishedFolder& to,
                       uint64_t& done) {
  internal::SamplesAhead ahead(recipe, done, std::max(1, options.num_threads));
  int64_t noted = base::now_ns();
  while (done < recipe.num_samples) {
    const internal::SampleBlock& block = ahead.take();
    for (size_t i = 0; i < block.samples.size(); ++i) {
      const auto at = [&] { return fmt::format("sample {}", done); };
      if (!block.statuses[i].ok()) return block.statuses[i].at(at());
      const BetonSample& one = block.samples[i];
      HANJI_RETURN_IF_ERROR(to.write(path_of_image(images, done, one), one.values[0].bytes));
      ++done;
      const bool goes_on = !options.proceed || options.proceed(done, recipe.num_samples);
      if (!goes_on || base::now_ns() - noted > kNoteEvery) {
        HANJI_RETURN_IF_ERROR(to.note_done(done));
        noted = base::now_ns();
      }
      if (!goes_on) return false;
    }
    ahead.release();
  }
  return true;
}

}  // namespace

Result<MadeBeton> write_image_files(const fs::path& path, const fs::path& folder,
                                    const MakeBetonOptions& options) {
  std::error_code error;
  if (fs::exists(folder, error)) {
    return base::invalid_argument(folder.native() + ": exists; name another folder, or remove it");
  }
  HANJI_ASSIGN_OR_RETURN(BetonFile file, BetonFile::open(path));
  const ImagesToWrite images(std::move(file));
  if (images.image >= images.file.fields().size()) {
    return base::unsupported(path.native() + ": no rgb_image field to write");
  }
  const uint64_t page = images.file.sections().page_bytes;
  const uint64_t per_sample = std::max<uint64_t>(1, images.file.num_samples());
  const uint64_t mean_bytes = images.file.sections().num_pages * page / per_sample;
  const BetonRecipe recipe{
      .num_samples = images.file.num_samples(),
      .max_sample_bytes = mean_bytes,
      .read = [&images](uint64_t i, BetonSample& out) { return images.read(i, out); }};
  HANJI_ASSIGN_OR_RETURN(const auto to, UnfinishedFolder::open(folder, key_of_file(path)));
  MadeBeton made{.num_samples = to.num_done(), .num_resumed = to.num_done()};
  HANJI_RETURN_IF_ERROR(to.note_done(made.num_samples));
  HANJI_ASSIGN_OR_RETURN(made.is_whole, write_all(images, recipe, options, to, made.num_samples));
  if (made.is_whole) HANJI_RETURN_IF_ERROR(to.finish());
  return made;
}

}  // namespace hanji::data
