#include "hanji/data/make_beton.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "hanji/base/checksum.h"
#include "hanji/base/random.h"
#include "hanji/base/units.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/beton_layout.h"
#include "hanji/data/internal/samples_ahead.h"

namespace hanji::data {
namespace internal {

/// Samples that cannot be read: how many, and the first of them.
class SampleMistakes {
 public:
  bool any() const { return count_ > 0; }
  void add(uint64_t sample, const Status& status) {
    if (++count_ <= kMaxListed) text_ += fmt::format("\n  sample {}: {}", sample, status.message());
  }
  Status status(uint64_t num_samples) const {
    return base::corrupt(
        fmt::format("{} of {} samples cannot be read:{}", count_, num_samples, text_));
  }

 private:
  static constexpr uint64_t kMaxListed = 10;
  uint64_t count_ = 0;
  std::string text_;
};

}  // namespace internal

namespace {

namespace fs = std::filesystem;
using internal::kMaxPageBytes;

bool is_of_one_sample(const Status& status) {
  return status.code() == Code::kCorrupt || status.code() == Code::kUnsupported;
}

/// A page holds whole samples.
Status check_largest(const BetonRecipe& recipe) {
  if (recipe.max_sample_bytes <= kMaxPageBytes) return {};
  const bool is_named = !recipe.largest.empty();
  return base::invalid_argument(fmt::format(
      "{}{} {}, but a sample of a .beton file has at most {}; make it smaller, or leave it out",
      is_named ? recipe.largest : "the largest sample", is_named ? ": a sample of" : " has",
      base::format_bytes(
          static_cast<int64_t>(std::min<uint64_t>(recipe.max_sample_bytes, INT64_MAX))),
      base::format_bytes(kMaxPageBytes)));
}

/// After the first mistake samples are only tried. Result: whether it was not interrupted.
Result<bool> append_samples(const BetonRecipe& recipe, const MakeBetonOptions& options,
                            BetonWriter& writer, internal::SampleMistakes& mistakes) {
  uint64_t done = writer.num_appended();
  internal::SamplesAhead ahead(recipe, done, std::max(1, options.num_threads));
  while (done < recipe.num_samples) {
    const internal::SampleBlock& block = ahead.take();
    for (size_t i = 0; i < block.samples.size(); ++i, ++done) {
      Status status = block.statuses[i];
      if (!status.ok() && !is_of_one_sample(status))
        return status.at(fmt::format("sample {}", done));
      if (!status.ok()) mistakes.add(done, status);
      if (!mistakes.any()) HANJI_RETURN_IF_ERROR(writer.append(block.samples[i].values));
      if (options.proceed && !options.proceed(done + 1, recipe.num_samples)) return false;
    }
    ahead.release();
  }
  return true;
}

}  // namespace

uint64_t key_of_file(const fs::path& path) {
  std::error_code error;
  const std::string& name = path.native();
  uint64_t key = base::xxh3(std::as_bytes(std::span(name)));
  key = base::mix(key, static_cast<uint64_t>(fs::file_size(path, error)));
  const auto changed = fs::last_write_time(path, error).time_since_epoch().count();
  return base::mix(key, static_cast<uint64_t>(changed));
}

Result<MadeBeton> make_beton(const BetonRecipe& recipe, const fs::path& path,
                             const MakeBetonOptions& options) {
  std::error_code error;
  if (fs::exists(path, error)) {
    return base::invalid_argument(path.native() + ": exists; name another file, or remove it");
  }
  HANJI_RETURN_IF_ERROR(check_largest(recipe));
  HANJI_ASSIGN_OR_RETURN(
      BetonWriter writer,
      BetonWriter::create(
          path, recipe.fields,
          {.num_samples = recipe.num_samples,
           .page_bytes = std::max(kMinPageBytes, std::bit_ceil(recipe.max_sample_bytes)),
           .provenance = recipe.provenance,
           .resume_key = recipe.key}));
  MadeBeton made{.num_resumed = writer.num_appended()};
  internal::SampleMistakes mistakes;
  HANJI_ASSIGN_OR_RETURN(made.is_whole, append_samples(recipe, options, writer, mistakes));
  made.num_samples = writer.num_appended();
  if (!made.is_whole) return made;
  if (mistakes.any()) {
    HANJI_RETURN_IF_ERROR(writer.discard());
    return mistakes.status(recipe.num_samples);
  }
  HANJI_RETURN_IF_ERROR(writer.finish());
  return made;
}

}  // namespace hanji::data
