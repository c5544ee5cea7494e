#include "hanji/trace/jsonl.h"

#include <array>
#include <charconv>
#include <cmath>

#include "hanji/base/text.h"

namespace hanji::trace {
namespace {

using base::OutputFile;

bool ends_open(const std::filesystem::path& path) {
  const auto file = base::MappedFile::open(path);
  return file.ok() && !(*file).bytes().empty() && (*file).bytes().back() != std::byte{'\n'};
}

}  // namespace

JsonLine& JsonLine::add(std::string_view key, double value) {
  if (!std::isfinite(value)) return add_json(key, "null");
  std::array<char, 32> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return add_json(key, {digits.data(), static_cast<size_t>(result.ptr - digits.data())});
}

JsonLine& JsonLine::add(std::string_view key, int64_t value) {
  return add_json(key, std::to_string(value));
}

JsonLine& JsonLine::add(std::string_view key, std::string_view value) {
  return add_json(key, base::json_quote(base::escape_bytes(value)));
}

JsonLine& JsonLine::add_json(std::string_view key, std::string_view json) {
  text_ += text_.empty() ? '{' : ',';
  text_ += base::json_quote(key);
  text_ += ':';
  text_ += json;
  return *this;
}

std::string JsonLine::take() {
  const std::string text = text_.empty() ? "{}" : text_ + '}';
  text_.clear();
  return text;
}

Result<JsonlWriter> JsonlWriter::open(const std::filesystem::path& path, OutputFile::Mode mode) {
  const bool must_end_line = mode == OutputFile::Mode::kAppend && ends_open(path);
  HANJI_ASSIGN_OR_RETURN(OutputFile file, OutputFile::open(path, mode));
  JsonlWriter writer(std::move(file));
  if (must_end_line) HANJI_RETURN_IF_ERROR(writer.write(""));
  return writer;
}

Status JsonlWriter::write(std::string_view json_line) {
  if (json_line.find('\n') != std::string_view::npos) {
    return base::invalid_argument("JSONL: a line break inside a line; write compact JSON");
  }
  HANJI_RETURN_IF_ERROR(file_.append(json_line));
  HANJI_RETURN_IF_ERROR(file_.append("\n"));
  return file_.flush();
}

}  // namespace hanji::trace
