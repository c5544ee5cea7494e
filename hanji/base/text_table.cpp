#include "hanji/base/text_table.h"

#include <algorithm>
#include <numeric>

#include "hanji/base/text.h"

namespace hanji::base {
namespace {

constexpr size_t kGap = 2;          // Between two columns.
constexpr size_t kBelowIndent = 2;  // Of the columns that stand below the others.

/// Columns of the longest word.
size_t longest_word(std::string_view text) {
  size_t longest = 0;
  for (const std::string_view word : split(text, ' '))
    longest = std::max(longest, text_columns(word));
  return longest;
}

/// The words of `text` in lines of at most `width`.
std::vector<std::string> lines_of(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string_view word : split(text, ' ')) {
    std::string& last = lines.back();
    if (last.empty()) {
      last = word;
    } else if (text_columns(last) + 1 + text_columns(word) <= width) {
      last.append(" ").append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

/// Columns first to last - 1, which stand beside each other.
struct Band {
  size_t first = 0, last = 0, indent = 0;
};

/// How a table is set.
struct Layout {
  std::vector<size_t> widths;
  std::vector<Band> bands;
};

using Cells = std::vector<std::string>;
using Align = TextTable::Align;

/// The widths that columns have unbroken and at least.
struct Extent {
  size_t natural = 0, least = 0;
};

size_t width_of(const std::vector<size_t>& widths, const Band& band) {
  const auto begin = widths.begin();
  const size_t cells = std::accumulate(begin + band.first, begin + band.last, size_t{0});
  return band.indent + cells + kGap * (band.last - band.first - 1);
}

/// Narrows the widest columns that can break until the band fits, if that is possible.
void narrow(std::vector<size_t>& widths, const std::vector<Extent>& extents, const Band& band,
            size_t most) {
  for (size_t wide = width_of(widths, band); wide > most; --wide) {
    size_t widest = band.last;
    for (size_t i = band.first; i < band.last; ++i) {
      const bool breaks = widths[i] > extents[i].least;
      if (breaks && (widest == band.last || widths[i] > widths[widest])) widest = i;
    }
    if (widest == band.last) return;
    --widths[widest];
  }
}

/// One band if the table fits at its least; else as many columns in each as fit.
Layout layout_of(const std::vector<Extent>& extents, size_t indent, size_t most) {
  std::vector<size_t> least;
  for (const Extent& one : extents) least.push_back(one.least);
  Layout layout;
  Band band{0, 0, indent};
  for (size_t i = 0; i < extents.size(); ++i) {
    if (i > band.first && width_of(least, {band.first, i + 1, band.indent}) > most) {
      layout.bands.push_back(band);
      band = {i, i, indent + kBelowIndent};
    }
    band.last = i + 1;
  }
  layout.bands.push_back(band);
  for (const Extent& one : extents) layout.widths.push_back(one.natural);
  for (const Band& one : layout.bands) narrow(layout.widths, extents, one, most);
  return layout;
}

void pad(std::string& line, size_t columns) {
  const size_t now = text_columns(line);
  if (now < columns) line.append(columns - now, ' ');
}

/// The lines of one row's columns of a band; `rises`: short cells stand at the bottom, as headings do.
std::string band_text(const Cells& cells, const std::vector<TextTable::Column>& columns,
                      const Layout& layout, const Band& band, bool rises) {
  std::vector<std::vector<std::string>> parts;
  size_t height = 1;
  for (size_t i = band.first; i < band.last; ++i) {
    parts.push_back(lines_of(cells[i], layout.widths[i]));
    height = std::max(height, parts.back().size());
  }
  std::string text;
  for (size_t at = 0; at < height; ++at) {
    std::string line(band.indent, ' ');
    size_t end = band.indent;
    for (size_t i = band.first; i < band.last; ++i) {
      const std::vector<std::string>& lines = parts[i - band.first];
      const size_t above = rises ? height - lines.size() : 0;
      const std::string part = at >= above && at - above < lines.size() ? lines[at - above] : "";
      const size_t blanks = layout.widths[i] - std::min(layout.widths[i], text_columns(part));
      pad(line, end + (columns[i].align == Align::kRight ? blanks : 0));
      line += part;
      end += layout.widths[i] + kGap;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns, int indent)
    : columns_(std::move(columns)), indent_(indent) {}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(int columns) const {
  Cells headings;
  std::vector<Extent> extents;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    headings.push_back(column.heading);
    Extent extent{text_columns(column.heading), longest_word(column.heading)};
    for (const Cells& row : rows_) {
      const size_t whole = text_columns(row[i]);
      const bool breaks = column.align == Align::kLeft && !column.is_whole;
      const size_t least = breaks ? longest_word(row[i]) : whole;
      extent = {std::max(extent.natural, whole), std::max(extent.least, least)};
    }
    extents.push_back(extent);
  }
  const Layout layout =
      layout_of(extents, static_cast<size_t>(indent_), static_cast<size_t>(columns));
  const bool has_headings =
      std::ranges::any_of(headings, [](const auto& one) { return !one.empty(); });
  std::string text;
  const auto add_row = [&](const Cells& cells, bool rises) {
    for (const Band& band : layout.bands) {
      text += band_text(cells, columns_, layout, band, rises);
    }
  };
  if (has_headings) add_row(headings, true);
  for (const Cells& row : rows_) add_row(row, false);
  return text;
}

}  // namespace hanji::base
