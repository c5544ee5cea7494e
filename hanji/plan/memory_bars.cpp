#include "hanji/plan/memory_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::plan {
namespace {

constexpr int kChartColumns = 80;
constexpr int kLabelColumns = 12;
constexpr int kBarColumns =
    kChartColumns - kLabelColumns - 12;  // a mark and the sum stand behind it
constexpr double kBarPixels = 560;
constexpr int kRowPixels = 30;
constexpr std::array kColours = {"#4878a8", "#7fb069", "#e6a04b", "#c65b5b", "#8a6fb0",
                                 "#55a5a0", "#b08d6f", "#d49bc0", "#999999", "#c9c35a"};

// Of what all bars and the limit reach.
int64_t scale_of(const std::vector<MemoryBar>& bars, int64_t limit_bytes) {
  int64_t most = std::max<int64_t>(1, limit_bytes);
  for (const MemoryBar& bar : bars) most = std::max(most, total_bytes(bar.lines));
  return most;
}

// "parameters" -> 'P'; a letter that is taken gives way to the next of the word, then to digits.
std::string letters_of(const std::vector<MemoryLine>& lines) {
  std::string letters;
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; };
  for (const MemoryLine& line : lines) {
    char chosen = 0;
    for (const char c : line.category + "0123456789") {
      const char one = upper(c);
      const bool usable = (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9');
      if (!usable || letters.find(one) != std::string::npos) continue;
      chosen = one;
      break;
    }
    letters += chosen == 0 ? '?' : chosen;
  }
  return letters;
}

// Which categories any bar has.
std::vector<size_t> shown(const std::vector<MemoryBar>& bars) {
  std::vector<size_t> indices;
  const size_t num_categories = bars.empty() ? 0 : bars.front().lines.size();
  for (size_t i = 0; i < num_categories; ++i) {
    const auto has = [&](const MemoryBar& bar) { return bar.lines[i].bytes > 0; };
    if (std::ranges::any_of(bars, has)) indices.push_back(i);
  }
  return indices;
}

std::string bar_of(const MemoryBar& bar, const std::string& letters, double bytes_per_column) {
  std::string text;
  double end = 0;
  for (size_t i = 0; i < bar.lines.size(); ++i) {
    end += static_cast<double>(bar.lines[i].bytes);
    const auto until = static_cast<size_t>(std::lround(end / bytes_per_column));
    if (until > text.size()) text.append(until - text.size(), letters[i]);
  }
  return text;
}

std::string svg_row(const MemoryBar& bar, double y, double pixels_per_byte) {
  std::string out = fmt::format("<text x=\"110\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n",
                                y + 15, base::xml_escape(bar.label));
  double x = 120;
  for (size_t i = 0; i < bar.lines.size(); ++i) {
    const MemoryLine& line = bar.lines[i];
    const double width = static_cast<double>(line.bytes) * pixels_per_byte;
    if (line.bytes <= 0) continue;
    out += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"20\" fill=\"{}\">"
        "<title>{}: {}</title></rect>\n",
        x, y, width, kColours[i % kColours.size()], base::xml_escape(line.category),
        base::format_bytes(line.bytes));
    x += width;
  }
  return out + fmt::format("<text x=\"{:.2f}\" y=\"{:.0f}\">{}</text>\n", x + 6, y + 15,
                           base::format_bytes(total_bytes(bar.lines)));
}

}  // namespace

std::string bars_text(const std::vector<MemoryBar>& bars, int64_t limit_bytes) {
  if (bars.empty()) return "";
  const double per_column = static_cast<double>(scale_of(bars, limit_bytes)) / kBarColumns;
  const std::string letters = letters_of(bars.front().lines);
  const auto end = static_cast<size_t>(std::lround(static_cast<double>(limit_bytes) / per_column));
  std::string out;
  for (const MemoryBar& bar : bars) {
    std::string text = bar_of(bar, letters, per_column);
    text.resize(kBarColumns + 1, ' ');
    if (limit_bytes > 0) text[end] = '|';
    out += fmt::format("{:<{}}{}{:>10}\n", bar.label.substr(0, kLabelColumns - 1), kLabelColumns,
                       text, base::format_bytes(total_bytes(bar.lines)));
  }
  std::string key = std::string(kLabelColumns, ' ');
  size_t column = kLabelColumns;
  const char* apart = "";
  for (const size_t i : shown(bars)) {
    std::string entry = fmt::format("{}{} {}", apart, letters[i], bars.front().lines[i].category);
    if (column + entry.size() > kChartColumns) {
      key += "\n" + std::string(kLabelColumns, ' ');
      column = kLabelColumns;
      entry.erase(0, 2);
    }
    key += entry;
    column += entry.size();
    apart = "  ";
  }
  if (limit_bytes > 0) {
    key += fmt::format("\n{:{}}| {}", "", kLabelColumns, base::format_bytes(limit_bytes));
  }
  return out + key + "\n";
}

std::string bars_svg(const std::vector<MemoryBar>& bars, int64_t limit_bytes) {
  const double per_byte = kBarPixels / static_cast<double>(scale_of(bars, limit_bytes));
  const int bottom = 20 + kRowPixels * static_cast<int>(bars.size());
  const std::vector<size_t> categories = shown(bars);
  const int key_rows = static_cast<int>(categories.size() + 3) / 4;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"780\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      bottom + 30 + 22 * key_rows);
  double y = 15;
  for (const MemoryBar& bar : bars) {
    out += svg_row(bar, y, per_byte);
    y += kRowPixels;
  }
  if (limit_bytes > 0) {
    const double x = 120 + static_cast<double>(limit_bytes) * per_byte;
    out += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"5\" x2=\"{0:.2f}\" y2=\"{1}\" stroke=\"#111111\" "
        "stroke-dasharray=\"4 3\"/><text x=\"{0:.2f}\" y=\"{2}\" "
        "text-anchor=\"middle\">{3}</text>\n",
        x, bottom - 2, bottom + 13, base::format_bytes(limit_bytes));
  }
  for (size_t n = 0; n < categories.size(); ++n) {
    const size_t i = categories[n];
    const int left = 120 + 150 * static_cast<int>(n % 4);
    const int top = bottom + 22 + 22 * static_cast<int>(n / 4);
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        left, top, kColours[i % kColours.size()], left + 18, top + 11,
        base::xml_escape(bars.front().lines[i].category));
  }
  return out + "</svg>\n";
}

}  // namespace hanji::plan
