#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::data::internal {

/// A text of comma-separated values, the first line of which names the columns.
///
/// Values may be quoted; a quote within is doubled, and commas and line ends are text then. Lines
/// end with LF or CRLF; empty lines are skipped.
/// Cost    parse() passes over the text once and keeps 8 bytes per row.
/// Thread  any number of threads may read rows.
/// Source  RFC 4180
class CsvTable {
 public:
  /// `text` must live as long as this.
  /// Errors  kCorrupt with the line: another number of values than columns, a quote that is not
  ///         closed or within a value, a zero byte, two columns of one name.
  static Result<CsvTable> parse(std::string_view text);

  const std::vector<std::string>& columns() const { return columns_; }
  uint64_t num_rows() const { return rows_.size(); }
  /// The values of a row.
  std::vector<std::string> row(uint64_t number) const;
  /// The line of the text, counted from 1, at which a row begins.
  uint64_t line_of(uint64_t number) const;

 private:
  std::string_view text_;
  std::vector<std::string> columns_;
  std::vector<uint64_t> rows_;  // where each begins
};

}  // namespace hanji::data::internal
