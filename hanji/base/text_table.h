#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/terminal.h"

namespace hanji::base {

/// A table of text that fits a terminal: as wide as its cells where that fits; else the cells of left-aligned
/// columns and the headings break at blanks, the widest first; else a row takes several lines, with the last
/// columns below the first ones, indented.
class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string heading = {};
    Align align = Align::kRight;
    bool is_whole = false;  ///< Its cells never break: commands to paste.
  };

  /// `indent`: blanks before each line.
  explicit TextTable(std::vector<Column> columns, int indent = 0);

  /// Adds a row; cells that are missing at its end are empty.
  void add(std::vector<std::string> cells);

  /// The headings, unless all are empty, and the rows; no line ends with a blank.
  /// Cost    linear in the text.
  std::string text(int columns = kTerminalColumns) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  int indent_ = 0;
};

}  // namespace hanji::base
