#include "hanji/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "hanji/base/checksum.h"
#include "hanji/base/json.h"
#include "hanji/base/units.h"

// The text is one JSON object whose last member is written apart, so that the checksum covers every
// byte before it, white space too:
//   { ... the members below ... ,
//    "checksum": "16 hexadecimal digits"
//   }
namespace hanji::checkpoint {
namespace {

using base::Json;

constexpr std::string_view kSeal = ",\n \"checksum\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr size_t kDigits = 16;
// Far above any honest manifest (200 bytes a tensor), far below what would hurt to parse.
constexpr size_t kMaxBytes = size_t{16} << 20;

uint64_t checksum_of(std::string_view text) { return base::xxh3(std::as_bytes(std::span(text))); }

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

int64_t num_elements(const TensorRecord& tensor) {
  const auto bytes = dense_bytes(tensor.dtype, tensor.shape);
  return bytes ? *bytes / static_cast<int64_t>(base::size_of(tensor.dtype)) : -1;
}

Json to_json(const TensorRecord& tensor) {
  Json json = {{"name", tensor.name},
               {"dtype", base::name_of(tensor.dtype)},
               {"shape", tensor.shape},
               {"xxh3", hex(tensor.checksum)}};
  if (tensor.is_whole()) return json;
  const auto [begin, size, stride, count] = tensor.elements;
  json["elements"] = {begin, begin + size};
  if (count > 1) json["elements"] = {begin, begin + size, stride, count};
  return json;
}

Json to_json(const WriterRecord& writer) {
  return {{"rank", writer.rank}, {"coordinates", writer.coordinates}};
}

Json to_json(const FileRecord& file) {
  Json tensors = Json::array();
  for (const TensorRecord& tensor : file.tensors) tensors.push_back(to_json(tensor));
  return {{"name", file.name},
          {"bytes", file.size_bytes},
          {"header_xxh3", hex(file.header_checksum)},
          {"writer", to_json(file.writer)},
          {"tensors", std::move(tensors)}};
}

// Takes typed members out of an object and remembers the first that is missing or of another type.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("", "an object");
  }

  std::string text(const char* key) {
    const Json* value = find(key, "a string", &Json::is_string);
    return value == nullptr ? std::string() : value->get<std::string>();
  }
  int64_t count(const char* key) {
    const Json* value = find(key, "a whole number", &Json::is_number_integer);
    if (value == nullptr) return 0;
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= INT64_MAX;
    if (!fits) fail(key, "from 0 to 2^63 - 1");
    return fits ? value->get<int64_t>() : 0;
  }
  uint64_t checksum(const char* key) {
    const std::string digits = text(key);
    uint64_t value = 0;
    const char* last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value, 16);
    if (digits.size() != kDigits || error != std::errc() || end != last) fail(key, "16 hex digits");
    return value;
  }
  const Json& array(const char* key) {
    static const Json kNone = Json::array();
    const Json* value = find(key, "an array", &Json::is_array);
    return value == nullptr ? kNone : *value;
  }
  /// Of whole numbers from 0 on.
  std::vector<int64_t> counts(const char* key) {
    std::vector<int64_t> values;
    for (const Json& value : array(key)) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
        fail(key, "an array of whole numbers");
        break;
      }
      values.push_back(value.get<int64_t>());
    }
    return values;
  }
  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }
  const Json& object(const char* key) {
    static const Json kNone = Json::object();
    const Json* value = find(key, "an object", &Json::is_object);
    return value == nullptr ? kNone : *value;
  }
  std::optional<double> optional_number(const char* key) {
    if (!has(key)) return std::nullopt;
    const Json* value = find(key, "a number", &Json::is_number);
    return value == nullptr ? std::nullopt : std::optional(value->get<double>());
  }
  void fail(std::string_view key, std::string_view wanted) {
    if (!status_.ok()) return;
    status_ = base::corrupt(fmt::format("manifest: {}{} must be {}", where_, key, wanted));
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* key, std::string_view wanted, bool (Json::*is)() const noexcept) {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end() && ((*found).*is)()) return &*found;
    fail(key, wanted);
    return nullptr;
  }

  const Json& object_;
  std::string where_;
  Status status_;
};

std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < base::kNumDTypes; ++i) {
    if (base::name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// What to_json() writes of runs in a tensor of `num_elements`; nothing for anything else.
std::optional<layout::StridedRange> runs_of(const std::vector<int64_t>& numbers,
                                            int64_t num_elements) {
  if (numbers.size() != 2 && numbers.size() != 4) return std::nullopt;
  const int64_t begin = numbers[0], end = numbers[1];
  if (begin > end || end > num_elements) return std::nullopt;
  if (numbers.size() == 2) return layout::StridedRange{begin, end - begin};
  const int64_t stride = numbers[2], count = numbers[3];
  const bool apart = end > begin && stride > end - begin && count > 1;
  if (!apart || (num_elements - end) / stride < count - 1) return std::nullopt;
  return layout::StridedRange{begin, end - begin, stride, count};
}

/// True if a version before that of several runs can read it.
bool is_version_2(const Manifest& manifest) {
  return std::ranges::all_of(manifest.files, [](const FileRecord& file) {
    return std::ranges::all_of(file.tensors,
                               [](const TensorRecord& one) { return one.elements.count == 1; });
  });
}

Result<TensorRecord> parse_tensor(const Json& json, const std::string& where) {
  Reader reader(json, where);
  TensorRecord tensor;
  tensor.name = reader.text("name");
  tensor.checksum = reader.checksum("xxh3");
  const auto dtype = dtype_named(reader.text("dtype"));
  if (!dtype) reader.fail("dtype", "an element type");
  tensor.dtype = dtype.value_or(DType::kFloat32);
  tensor.shape = reader.counts("shape");
  const int64_t count = num_elements(tensor);
  if (count < 0) reader.fail("shape", "one that memory holds");
  tensor.elements = {.size = count};
  if (reader.has("elements")) {
    const auto runs = runs_of(reader.counts("elements"), count);
    if (!runs) reader.fail("elements", "where runs of the tensor begin and end");
    tensor.elements = runs.value_or(layout::StridedRange());
  }
  HANJI_RETURN_IF_ERROR(reader.status());
  return tensor;
}

Result<WriterRecord> parse_writer(const Json& json) {
  Reader reader(json, "files.writer.");
  WriterRecord writer{.rank = reader.count("rank")};
  for (const auto& [axis, coordinate] : reader.object("coordinates").items()) {
    if (!coordinate.is_number_unsigned()) reader.fail("coordinates", "whole numbers");
    if (reader.status().ok()) writer.coordinates[axis] = coordinate.get<int64_t>();
  }
  HANJI_RETURN_IF_ERROR(reader.status());
  return writer;
}

Result<FileRecord> parse_file(const Json& json) {
  Reader reader(json, "files.");
  FileRecord file;
  file.name = reader.text("name");
  file.size_bytes = reader.count("bytes");
  file.header_checksum = reader.checksum("header_xxh3");
  // A name from a file could lead anywhere; only these are ever opened.
  if (!kind_of_file(file.name)) {
    reader.fail("name", fmt::format("{}, {} or that of a part", kModelFile, kOptimizerFile));
  }
  const Json& tensors = reader.array("tensors");
  HANJI_RETURN_IF_ERROR(reader.status());
  if (reader.has("writer")) {
    HANJI_ASSIGN_OR_RETURN(file.writer, parse_writer(json["writer"]));
  }
  for (const Json& tensor : tensors) {
    HANJI_ASSIGN_OR_RETURN(TensorRecord record, parse_tensor(tensor, file.name + ".tensors."));
    file.tensors.push_back(std::move(record));
  }
  return file;
}

// The bytes that the checksum covers, or why the seal does not fit them.
Status check_seal(std::string_view text) {
  const size_t seal_bytes = kSeal.size() + kDigits + kSealEnd.size();
  if (text.size() > kMaxBytes || text.size() < seal_bytes) {
    return base::corrupt(fmt::format("manifest: {} bytes; from {} to {} make sense", text.size(),
                                     seal_bytes, kMaxBytes));
  }
  const std::string_view covered = text.substr(0, text.size() - seal_bytes);
  const std::string seal = fmt::format("{}{}{}", kSeal, hex(checksum_of(covered)), kSealEnd);
  if (text.substr(covered.size()) == seal) return {};
  return base::corrupt("manifest: the checksum at its end does not fit the bytes before it");
}

Result<Json> parse_object(const std::string& text, const char* what) {
  auto json = base::parse_json(text);
  if (json.ok() && json->is_object()) return json;
  return base::invalid_argument(fmt::format("the manifest's {} must be a JSON object", what));
}

}  // namespace

bool TensorRecord::is_whole() const {
  return elements == layout::StridedRange{.size = num_elements(*this)};
}

TensorForm TensorRecord::form() const {
  if (is_whole()) return {name, dtype, shape};
  const auto [begin, size, stride, count] = elements;
  if (count == 1) return {fmt::format("{}[{}:{}]", name, begin, begin + size), dtype, {size}};
  return {fmt::format("{}[{}:{}:{}:{}]", name, begin, begin + size, stride, count),
          dtype,
          {count, size}};
}

std::string file_name(StateKind kind, int part, int num_parts) {
  const std::string_view whole = kind == StateKind::kModel ? kModelFile : kOptimizerFile;
  if (num_parts == 1) return std::string(whole);
  const size_t dot = whole.find('.');
  return fmt::format("{}.part_{}{}", whole.substr(0, dot), part, whole.substr(dot));
}

std::optional<StateKind> kind_of_file(std::string_view name) {
  constexpr int kAFew = 2;
  for (const StateKind kind : {StateKind::kModel, StateKind::kOptimizer}) {
    if (name == file_name(kind, 0, 1)) return kind;
    const size_t digits = file_name(kind, 0, kAFew).find('0');
    int part = 0;
    if (name.size() > digits)
      std::from_chars(name.data() + digits, name.data() + name.size(), part);
    if (part >= 0 && name == file_name(kind, part, kAFew)) return kind;
  }
  return std::nullopt;
}

Result<std::string> to_text(const Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const Json job, parse_object(manifest.job, "job"));
  HANJI_ASSIGN_OR_RETURN(const Json plan, parse_object(manifest.plan, "plan"));
  Json json = {{"format", "hanji checkpoint"},
               {"format_version", is_version_2(manifest) ? 2 : kFormatVersion},
               {"writer", manifest.writer},
               {"step", manifest.step},
               {"num_samples", manifest.num_samples},
               {"state_hash", manifest.state_hash}};
  if (manifest.validation_loss) {
    if (!std::isfinite(*manifest.validation_loss)) {
      return base::invalid_argument("a validation loss that is not finite cannot be compared");
    }
    json["validation_loss"] = *manifest.validation_loss;
  }
  json["job"] = job;
  json["plan"] = plan;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) json["files"].push_back(to_json(file));
  std::string text = base::dump(json, 1);
  text.resize(text.size() - 2);  // Without the closing "\n}", which comes behind the checksum.
  return fmt::format("{}{}{}{}", text, kSeal, hex(checksum_of(text)), kSealEnd);
}

Result<Manifest> parse_manifest(std::string_view text) {
  HANJI_RETURN_IF_ERROR(check_seal(text));
  HANJI_ASSIGN_OR_RETURN(const Json json, base::parse_json(text, 64, kMaxBytes));
  Reader reader(json, "");
  if (reader.text("format") != "hanji checkpoint") reader.fail("format", "\"hanji checkpoint\"");
  const int64_t version = reader.count("format_version");
  if (reader.status().ok() && (version < 1 || version > kFormatVersion)) {
    return base::unsupported(
        fmt::format("manifest: format version {}, and this program reads 1 to {}; use a newer one",
                    version, kFormatVersion));
  }
  Manifest manifest;
  manifest.writer = reader.text("writer");
  manifest.step = reader.count("step");
  manifest.num_samples = reader.count("num_samples");
  manifest.state_hash = reader.text("state_hash");
  manifest.validation_loss = reader.optional_number("validation_loss");
  manifest.job = base::dump(reader.object("job"));
  manifest.plan = base::dump(reader.object("plan"));
  const Json& files = reader.array("files");
  HANJI_RETURN_IF_ERROR(reader.status());
  for (const Json& file : files) {
    HANJI_ASSIGN_OR_RETURN(FileRecord record, parse_file(file));
    manifest.files.push_back(std::move(record));
  }
  return manifest;
}

Status verify(const FileRecord& record, const SafetensorsFile& file, Check check) {
  const auto refuse = [&record](const std::string& why) {
    return base::corrupt(fmt::format("{}: {}", record.name, why));
  };
  if (file.size_bytes() != record.size_bytes) {
    return refuse(fmt::format("{} bytes, {} were saved", file.size_bytes(), record.size_bytes));
  }
  const size_t num_tensors = file.tensors().size() + file.foreign().size();
  if (num_tensors != record.tensors.size()) {
    return refuse(fmt::format("{}, {} were saved", base::counted(num_tensors, "tensor"),
                              record.tensors.size()));
  }
  if (!file.foreign().empty()) {
    const ForeignTensor& one = file.foreign().front();
    return refuse(
        fmt::format("tensor '{}' {} is of a type that was not saved", one.name, describe(one)));
  }
  for (size_t i = 0; i < record.tensors.size(); ++i) {
    const NamedTensor& have = file.tensors()[i];
    const TensorForm saved = record.tensors[i].form();
    if (have.name != saved.name || have.dtype != saved.dtype || have.shape != saved.shape) {
      return refuse(fmt::format("tensor '{}' {} lies where '{}' {} was saved", have.name,
                                describe(have.dtype, have.shape), saved.name,
                                describe(saved.dtype, saved.shape)));
    }
    if (check == Check::kForm) continue;
    const uint64_t checksum = record.tensors[i].checksum;
    if (const uint64_t now = base::xxh3(have.bytes); now != checksum) {
      return refuse(fmt::format("tensor '{}' has checksum {}, {} was saved: its bytes changed",
                                have.name, hex(now), hex(checksum)));
    }
  }
  if (base::xxh3(file.header()) == record.header_checksum) return {};
  return refuse("its header changed since it was saved");
}

}  // namespace hanji::checkpoint
