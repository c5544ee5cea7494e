#include "hanji/data/internal/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "hanji/base/text.h"

namespace hanji::data::internal {
namespace {

/// Reads values one after the other.
class CsvReader {
 public:
  CsvReader(std::string_view text, uint64_t at) : text_(text), at_(at) {}

  bool is_at_end() const { return at_ == text_.size(); }
  uint64_t position() const { return at_; }

  /// An empty line. Result: whether there was one, which is passed.
  bool skip_empty_line() { return !is_at_end() && take_line_end(); }

  /// The values up to the end of a line, which is passed.
  Result<std::vector<std::string>> row() {
    std::vector<std::string> values;
    while (true) {
      HANJI_ASSIGN_OR_RETURN(std::string value, this->value());
      values.push_back(std::move(value));
      if (is_at_end() || take_line_end()) return values;
      ++at_;  // a comma
    }
  }

 private:
  bool take_line_end() {
    const std::string_view rest = text_.substr(at_);
    const size_t size = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
    at_ += size;
    return size > 0;
  }

  Result<std::string> value() {
    if (text_.substr(at_).starts_with('"')) return quoted();
    const size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
    std::string_view value = text_.substr(at_, end - at_);
    if (end < text_.size() && text_[end] == '\n' && value.ends_with('\r')) value.remove_suffix(1);
    if (value.find_first_of(std::string_view("\"\0", 2)) != std::string_view::npos) {
      return base::corrupt("a quote within a value that does not begin with one, or a zero byte");
    }
    at_ += value.size();
    return std::string(value);
  }

  Result<std::string> quoted() {
    std::string value;
    ++at_;
    while (true) {
      const size_t end = text_.find_first_of(std::string_view("\"\0", 2), at_);
      if (end == std::string_view::npos || text_[end] == '\0') {
        return base::corrupt("a quote that is not closed, or a zero byte");
      }
      value += text_.substr(at_, end - at_);
      at_ = end + 1;
      if (!text_.substr(at_).starts_with('"')) break;
      value += '"';
      ++at_;
    }
    const std::string_view rest = text_.substr(at_);
    if (rest.empty() || rest.front() == ',' || rest.front() == '\n' || rest.starts_with("\r\n")) {
      return value;
    }
    return base::corrupt("text behind the closing quote of a value");
  }

  std::string_view text_;
  uint64_t at_;
};

uint64_t line_at(std::string_view text, uint64_t position) {
  const auto begin = text.begin();
  return 1 + static_cast<uint64_t>(std::count(begin, begin + static_cast<int64_t>(position), '\n'));
}

}  // namespace

Result<CsvTable> CsvTable::parse(std::string_view text) {
  CsvTable table;
  table.text_ = text;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  CsvReader reader(text, text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  while (true) {
    while (reader.skip_empty_line()) continue;
    if (reader.is_at_end()) break;
    const uint64_t begin = reader.position();
    auto values = reader.row();
    const auto at_line = [&] { return fmt::format("line {}", line_at(text, begin)); };
    if (!values.ok()) return values.status().at(at_line());
    if (table.columns_.empty()) {
      table.columns_ = *std::move(values);
      continue;
    }
    if (values->size() != table.columns_.size()) {
      return base::corrupt(fmt::format("{} values for {} columns; quote values that have commas",
                                       values->size(), table.columns_.size()))
          .at(at_line());
    }
    table.rows_.push_back(begin);
  }
  const std::set<std::string> names(table.columns_.begin(), table.columns_.end());
  if (table.rows_.empty() || names.size() != table.columns_.size()) {
    return base::corrupt(
        "no line of names with a line of values below it, or two columns of one name");
  }
  return table;
}

std::vector<std::string> CsvTable::row(uint64_t number) const {
  return *CsvReader(text_, rows_[number]).row();
}

uint64_t CsvTable::line_of(uint64_t number) const { return line_at(text_, rows_[number]); }

}  // namespace hanji::data::internal
