#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hanji::report::internal {

/// A table with a caption; the first cell of a row is its heading, the others are numbers or words.
class HtmlTable {
 public:
  struct Column {
    std::string heading;
    bool is_words = false;  ///< Breaks into lines; else a number, at the right.
  };
  HtmlTable(std::string caption, std::vector<Column> columns)
      : caption_(std::move(caption)), columns_(std::move(columns)) {}

  /// A cell for each column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  bool empty() const { return rows_.empty(); }
  /// In a box that scrolls by keyboard, too; nothing without rows.
  std::string html() const;

 private:
  std::string caption_;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// <p>text</p>, the text escaped.
std::string paragraph(std::string_view text, std::string_view css_class = {});
/// A section with its heading; nothing without content.
std::string section(std::string_view heading, std::string_view content);
/// A picture in a box that scrolls by keyboard, too, with words below it.
std::string figure(std::string_view svg, std::string_view name, std::string_view caption);

}  // namespace hanji::report::internal
