#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hanji/base/file.h"

namespace hanji::trace {

/// Builds one JSON object, key by key, in order: JsonLine().add("step", 3).add("loss", 1.5).take().
///
/// Result  doubles in the fewest digits that give the same double back; NaN and infinities, which
///         JSON lacks, become null. Keys are not checked for being new.
class JsonLine {
 public:
  JsonLine& add(std::string_view key, double value);
  JsonLine& add(std::string_view key, int64_t value);
  JsonLine& add(std::string_view key, std::string_view value);
  JsonLine& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonLine& add(std::string_view key, const std::string& value) {
    return add(key, std::string_view(value));
  }
  template <std::integral T>
  JsonLine& add(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>) {
      return add_json(key, value ? "true" : "false");
    } else {
      return add(key, static_cast<int64_t>(value));
    }
  }
  /// `json` goes in as it is: an array or object made elsewhere, without line breaks.
  JsonLine& add_json(std::string_view key, std::string_view json);
  /// "{...}" without a line break; the builder is empty again.
  std::string take();

 private:
  std::string text_;
};

/// Appends lines of JSON to a file; each is one write(2), so a killed run keeps all lines whole.
class JsonlWriter {
 public:
  /// kAppend first ends a line that a killed writer left open, so that only that one is lost.
  static Result<JsonlWriter> open(const std::filesystem::path& path,
                                  base::OutputFile::Mode mode = base::OutputFile::Mode::kAppend);

  /// Errors  kInvalidArgument if the line holds a line break; those of base::OutputFile.
  Status write(std::string_view json_line);

 private:
  explicit JsonlWriter(base::OutputFile file) : file_(std::move(file)) {}
  base::OutputFile file_;
};

}  // namespace hanji::trace
