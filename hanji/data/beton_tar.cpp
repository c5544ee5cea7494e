#include "hanji/data/beton_tar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/base/units.h"
#include "hanji/data/data_folder.h"
#include "hanji/data/internal/encoded_image.h"
#include "hanji/data/internal/npy_header.h"
#include "hanji/data/internal/tar_index.h"

namespace hanji::data {
namespace internal {

/// Where a value lies.
struct TarValue {
  std::string extension;
  uint64_t begin = 0;
  uint64_t size = 0;
};

struct TarSample {
  uint32_t shard = 0;
  std::string key;
  std::vector<TarValue> values;
};

struct TarShards {
  std::vector<std::string> names;
  std::vector<std::filesystem::path> no_sample = {};  ///< Members without KEY.EXTENSION.
  std::vector<std::filesystem::path> metadata = {};
  std::vector<std::filesystem::path> numbers = {};  ///< Members such as 22.00.png.
  std::vector<base::MappedFile> files;
  std::vector<TarSample> samples;
  std::vector<BetonField> fields;

  std::span<const std::byte> bytes(const TarSample& of, const TarValue& value) const {
    return files[of.shard].bytes().subspan(value.begin, value.size);
  }
  uint64_t stored_bytes(const TarSample& of, const TarValue& value) const {
    const auto field = std::ranges::find(fields, value.extension, &BetonField::name);
    const bool is_image = field != fields.end() && field->type == BetonType::kRgbImage;
    return is_image ? internal::stored_bytes(bytes(of, value)) : value.size;
  }
  std::string name(const TarSample& one) const {
    return fmt::format("{}: {}", names[one.shard], one.key);
  }
};

/// Which sample of the shard that is being read has a key; the first of several.
using SamplesByKey = std::unordered_map<std::string, size_t>;

}  // namespace internal

namespace {

namespace fs = std::filesystem;
using internal::TarSample;
using internal::TarShards;
using internal::TarValue;

struct SampleName {
  std::string_view key;
  std::string_view extension;
};

constexpr std::string_view kKeyRule =
    "the key of a sample is its files' name up to the first dot, and what is behind it the field";

/// Nothing for a file that is in no sample.
std::optional<SampleName> parse_sample_name(std::string_view path) {
  const size_t base = path.rfind('/') + 1;
  const size_t dot = path.find('.', base);
  if (dot == std::string_view::npos || dot == base || dot + 1 == path.size()) return std::nullopt;
  const std::string_view folder = path.substr(0, path.find('/'));
  if (folder.size() > 4 && folder.starts_with("__") && folder.ends_with("__")) return std::nullopt;
  return SampleName{path.substr(0, dot), path.substr(dot + 1)};
}

std::string field_of_extension(std::string_view extension) {
  std::string field(extension);
  std::ranges::transform(field, field.begin(), [](unsigned char c) { return std::tolower(c); });
  return field == "jpeg" ? "jpg" : field;
}

BetonType type_of_extension(std::string_view extension) {
  static constexpr std::string_view kNumbers[] = {"cls",   "cls2", "class", "count",
                                                  "index", "inx",  "id"};
  const std::string_view last = extension.substr(extension.rfind('.') + 1);
  // A PNG behind another word is often a mask, whose palette or 16 bits would be lost.
  if (last == "jpg" || last == "jpeg" || extension == "png") return BetonType::kRgbImage;
  if (last == "json") return BetonType::kJson;
  if (last == "npy") return BetonType::kNdArray;
  return std::ranges::count(kNumbers, last) > 0 ? BetonType::kInt : BetonType::kBytes;
}

bool has_field(const TarSample& sample, std::string_view field) {
  return std::ranges::count(sample.values, field, &TarValue::extension) > 0;
}

/// Opens the sample that a member begins. A key may come again with a whole sample of its own, but not with
/// files that its first sample lacks.
Status begin_sample(uint32_t shard, const SampleName& name, TarShards& to,
                    internal::SamplesByKey& known) {
  const std::string key(name.key);
  const auto [before, is_first] = known.emplace(key, to.samples.size());
  const std::string field = field_of_extension(name.extension);
  if (!is_first && !has_field(to.samples[before->second], field)) {
    return base::corrupt(fmt::format(
        "{}: {}.{} comes behind the files of {}, away from the others of its sample; the files of "
        "a sample "
        "follow each other: make the shard again in the order of names, as with tar --sort=name",
        to.names[shard], key, name.extension, to.samples.back().key));
  }
  to.samples.push_back({shard, key, {}});
  return {};
}

Status add_value(const internal::TarMember& member, const SampleName& name, TarShards& to) {
  TarSample& sample = to.samples.back();
  TarValue value{field_of_extension(name.extension), member.begin, member.size};
  if (has_field(sample, value.extension)) {
    return base::corrupt(fmt::format("{}: two files .{} in one sample ({}); name them apart",
                                     to.name(sample), value.extension, kKeyRule));
  }
  sample.values.push_back(std::move(value));
  return {};
}

/// Whether what is behind the first dot looks like a number's decimals: 22.00.png.
bool splits_a_number(const SampleName& name) {
  const size_t dot = name.extension.find('.');
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return dot != std::string_view::npos && dot > 0 && is_digit(name.key.back()) &&
         std::ranges::all_of(name.extension.substr(0, dot), is_digit);
}

Status add_samples(uint32_t shard, TarShards& to) {
  auto members = internal::index_tar(to.files[shard].bytes());
  if (!members.ok()) return members.status().at(to.names[shard]);
  internal::SamplesByKey known;
  for (const internal::TarMember& one : *members) {
    const auto name = parse_sample_name(one.name);
    const std::string place = to.names[shard] + ": " + one.name;
    const bool is_hidden = has_metadata_name(one.name);
    if (is_hidden || !name) {
      (is_hidden ? to.metadata : to.no_sample).emplace_back(place);
      continue;
    }
    if (splits_a_number(*name)) to.numbers.emplace_back(place);
    const bool is_new = to.samples.empty() || to.samples.back().shard != shard ||
                        to.samples.back().key != name->key;
    if (is_new) HANJI_RETURN_IF_ERROR(begin_sample(shard, *name, to, known));
    HANJI_RETURN_IF_ERROR(add_value(one, *name, to));
  }
  return {};
}

std::vector<std::string> notes_of(const TarShards& shards) {
  std::vector<std::string> notes;
  note_metadata(notes, shards.metadata);
  note_left_out(notes, shards.no_sample, "file",
                " (in no sample: its files are named KEY.EXTENSION, outside of __folders__)");
  if (!shards.numbers.empty()) {
    notes.push_back(fmt::format(
        "{} with more than one dot, such as {}: {}; rename them if the number belongs to the key",
        base::counted(std::ssize(shards.numbers), "name"), shards.numbers.front().native(),
        kKeyRule));
  }
  return notes;
}

/// Behind a message about fields: where names have more than one dot, the rule.
std::string key_rule(const TarShards& shards, const TarSample& sample) {
  const bool has_dots = std::ranges::any_of(sample.values, [](const TarValue& one) {
    return one.extension.find('.') != std::string::npos;
  });
  return has_dots || !shards.numbers.empty() ? fmt::format("; {}", kKeyRule) : "";
}

/// The fields of the first sample.
Result<std::vector<BetonField>> fields_of_shards(const TarShards& shards) {
  const TarSample& first = shards.samples.front();
  std::vector<BetonField> fields;
  for (const TarValue& value : first.values) {
    BetonField field{.name = value.extension, .type = type_of_extension(value.extension)};
    if (field.type == BetonType::kNdArray) {
      auto header = internal::parse_npy(shards.bytes(first, value));
      if (!header.ok()) return header.status().at(shards.name(first) + "." + value.extension);
      field.shape = header->shape.empty() ? std::vector<uint64_t>{1} : header->shape;
      field.dtype = header->dtype;
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<int64_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return base::corrupt(fmt::format("{} bytes are no number", text.size()));
}

Status read_tar_array(const BetonField& field, BetonValue& value) {
  HANJI_ASSIGN_OR_RETURN(const auto header, internal::parse_npy(value.bytes));
  const auto shape = header.shape.empty() ? std::vector<uint64_t>{1} : header.shape;
  value.bytes = value.bytes.subspan(header.begin);
  if (header.dtype == field.dtype && shape == field.shape) return {};
  return base::corrupt("an array of another type or shape than the first sample's");
}

/// `value` has its bytes. Those of a PNG's rows come later, at the end of `rows`.
Status read_tar_value(const BetonField& field, BetonValue& value, std::vector<std::byte>& rows) {
  switch (field.type) {
    case BetonType::kRgbImage: {
      HANJI_ASSIGN_OR_RETURN(value, internal::store_image(value.bytes, rows));
      return {};
    }
    case BetonType::kInt: {
      HANJI_ASSIGN_OR_RETURN(value.integer, parse_number(text_in(value.bytes)));
      return {};
    }
    case BetonType::kNdArray: return read_tar_array(field, value);
    case BetonType::kJson: return base::parse_json(text_in(value.bytes)).status();
    default: return {};
  }
}

/// The rows of images follow each other in the order of the sample's files.
void point_at_rows(const TarShards& shards, const TarSample& sample, BetonSample& out) {
  size_t begin = 0;
  for (const TarValue& one : sample.values) {
    const auto field = std::ranges::find(shards.fields, one.extension, &BetonField::name);
    BetonValue& value = out.values[static_cast<size_t>(field - shards.fields.begin())];
    if (field->type != BetonType::kRgbImage || value.mode != BetonImageMode::kRaw) continue;
    const size_t size = size_t{3} * value.width * value.height;
    value.bytes = std::span(out.bytes).subspan(begin, size);
    begin += size;
  }
}

Status read_tar_sample(const TarShards& shards, uint64_t number, BetonSample& out) {
  const TarSample& sample = shards.samples[number];
  out.values.assign(shards.fields.size(), {});
  out.bytes.clear();
  for (const TarValue& one : sample.values) {
    const auto field = std::ranges::find(shards.fields, one.extension, &BetonField::name);
    if (field == shards.fields.end()) {
      return base::corrupt(fmt::format("{}: a file .{}, which the first sample has not{}",
                                       shards.name(sample), one.extension,
                                       key_rule(shards, sample)));
    }
    BetonValue& value = out.values[static_cast<size_t>(field - shards.fields.begin())];
    value.bytes = shards.bytes(sample, one);
    const Status status = read_tar_value(*field, value, out.bytes);
    if (!status.ok()) return status.at(shards.name(sample) + "." + one.extension);
  }
  point_at_rows(shards, sample, out);
  if (sample.values.size() == shards.fields.size()) return {};
  const auto is_missing = [&](const BetonField& field) {
    return std::ranges::count(sample.values, field.name, &TarValue::extension) == 0;
  };
  return base::corrupt(
      fmt::format("{}: no file .{}, which the first sample has{}", shards.name(sample),
                  std::ranges::find_if(shards.fields, is_missing)->name, key_rule(shards, sample)));
}

void measure_sample(const TarShards& shards, const TarSample& sample, BetonRecipe& recipe) {
  uint64_t bytes = 0, largest = 0;
  const TarValue* field = nullptr;
  for (const TarValue& value : sample.values) {
    const uint64_t stored = shards.stored_bytes(sample, value) + 1;
    bytes += stored;
    if (stored > largest) field = &value;
    largest = std::max(largest, stored);
  }
  if (bytes <= recipe.max_sample_bytes) return;
  recipe.max_sample_bytes = bytes;
  recipe.largest = fmt::format("{}, field {}", shards.name(sample), field->extension);
}

}  // namespace

Result<BetonRecipe> tar_recipe(std::span<const fs::path> paths) {
  const auto shards = std::make_shared<TarShards>();
  BetonRecipe recipe;
  for (const fs::path& path : paths) {
    HANJI_ASSIGN_OR_RETURN(auto file, base::MappedFile::open(path));
    shards->files.push_back(std::move(file));
    shards->names.push_back(path.native());
    HANJI_RETURN_IF_ERROR(add_samples(static_cast<uint32_t>(shards->files.size() - 1), *shards));
    recipe.key = base::mix(recipe.key, key_of_file(path));
  }
  if (shards->samples.empty()) {
    return base::invalid_argument(fmt::format(
        "no sample in the archives: no file named KEY.EXTENSION, such as 000.jpg{}{}; name shards "
        "of WebDataset",
        notes_of(*shards).empty() ? "" : ": ", fmt::join(notes_of(*shards), "; ")));
  }
  HANJI_ASSIGN_OR_RETURN(shards->fields, fields_of_shards(*shards));
  for (const TarSample& sample : shards->samples) measure_sample(*shards, sample, recipe);
  recipe.fields = shards->fields;
  recipe.num_samples = shards->samples.size();
  recipe.notes = notes_of(*shards);
  recipe.provenance = fmt::format(R"({{"samples":"tar","shards":{}}})", paths.size());
  recipe.read = [shards](uint64_t i, BetonSample& out) { return read_tar_sample(*shards, i, out); };
  return recipe;
}

}  // namespace hanji::data
