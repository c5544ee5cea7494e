#include "hanji/report/transpose_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/layout/axial_block.h"

namespace hanji::report {
namespace {

constexpr double kGridSide = 176, kGridLeft = 24, kGridGap = 120, kGridTop = 56;
constexpr std::array<std::string_view, 8> kRankColours = {
    "#2f5c9e", "#b7d5ac", "#f3d58a", "#c77d6b", "#7396c8", "#6b8f5e", "#a88bc0", "#8f8f8f"};
constexpr std::array<std::string_view, 8> kRankInks = {"#ffffff", "#000000", "#000000", "#000000",
                                                       "#000000", "#000000", "#000000", "#000000"};

/// The grid's left corner, and whether a block belongs to the rank of its column.
struct Grid {
  double x = 0;
  bool by_columns = false;
  std::string_view title;
};

std::string svg_words(double x, double y, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y, base::xml_escape(text));
}

std::string grid_svg(const Grid& grid, int ranks) {
  const double cell = kGridSide / ranks;
  std::string svg = svg_words(grid.x, kGridTop - 10, grid.title);
  for (int row = 0; row < ranks; ++row) {
    for (int column = 0; column < ranks; ++column) {
      const int rank = grid.by_columns ? column : row;
      const auto colour = static_cast<size_t>(rank) % kRankColours.size();
      const double x = grid.x + column * cell, y = kGridTop + row * cell;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
          "stroke=\"#ffffff\"/>\n<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\" "
          "fill=\"{}\">{}</text>\n",
          x, y, cell, cell, kRankColours[colour], x + cell / 2, y + cell / 2 + 5, kRankInks[colour],
          rank);
    }
  }
  return svg;
}

}  // namespace

TransposeBytes transpose_bytes(const TransposeShape& shape) {
  const int64_t one = shape.channels * shape.element_bytes;
  const auto part = [&](int64_t size, int rank) {
    return layout::axial_rows(size, rank, shape.ranks);
  };
  TransposeBytes bytes{.tensor = shape.rows * shape.columns * one,
                       .before = part(shape.rows, 0) * shape.columns * one,
                       .after = shape.rows * part(shape.columns, 0) * one};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int64_t rows = part(shape.rows, rank);
    bytes.sent = std::max(bytes.sent, rows * (shape.columns - part(shape.columns, rank)) * one);
    bytes.gathered = std::max(bytes.gathered, (shape.rows - rows) * shape.columns * one);
  }
  return bytes;
}

std::string transpose_text(const TransposeShape& shape) {
  const int drawn = std::min(shape.ranks, kMaxTransposedRanks);
  base::TextTable table({{"before: a rank has rows", base::TextTable::Align::kLeft},
                         {"", base::TextTable::Align::kLeft},
                         {"after: a rank has columns", base::TextTable::Align::kLeft}});
  for (int row = 0; row < drawn; ++row) {
    std::string before, after;
    for (int column = 0; column < drawn; ++column) {
      before += fmt::format("[{}]", row);
      after += fmt::format("[{}]", column);
    }
    table.add({before, row == drawn / 2 ? "->" : "", after});
  }
  std::string text = table.text() + "[r]: a block of rows and columns, which rank r has\n";
  if (drawn < shape.ranks)
    text += fmt::format("({} of {})\n", drawn, base::counted(shape.ranks, "rank"));
  return text;
}

base::Json transpose_json(const TransposeShape& shape) {
  const TransposeBytes bytes = transpose_bytes(shape);
  base::Json ranks = base::Json::array();
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const layout::Range rows = layout::axial_range(shape.rows, rank, shape.ranks);
    const layout::Range columns = layout::axial_range(shape.columns, rank, shape.ranks);
    ranks.push_back(
        {{"rows_before", {rows.begin, rows.end}}, {"columns_after", {columns.begin, columns.end}}});
  }
  return {{"shape", {shape.rows, shape.columns, shape.channels}},
          {"element_bytes", shape.element_bytes},
          {"tensor_bytes", bytes.tensor},
          {"bytes_before", bytes.before},
          {"bytes_after", bytes.after},
          {"sent_bytes", bytes.sent},
          {"all_gather_bytes", bytes.gathered},
          {"ranks", ranks}};
}

std::string transpose_svg(const TransposeShape& shape) {
  const int drawn = std::min(shape.ranks, kMaxTransposedRanks);
  constexpr double kWidth = 2 * kGridLeft + 2 * kGridSide + kGridGap,
                   kHeight = kGridTop + kGridSide + kGridLeft;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "fill=\"#ffffff\"/>\n",
      kWidth, kHeight);
  svg += svg_words(kGridLeft, 22,
                   fmt::format("transpose of a tensor of {} x {} x {} on {}", shape.rows,
                               shape.columns, shape.channels, base::counted(shape.ranks, "rank")));
  svg += grid_svg({kGridLeft, false, "before: a rank has rows"}, drawn);
  svg += grid_svg({kGridLeft + kGridSide + kGridGap, true, "after: a rank has columns"}, drawn);
  svg += svg_words(kGridLeft + kGridSide + 16, kGridTop + kGridSide / 2, "all_to_all \xe2\x86\x92");
  return svg + "</svg>\n";
}

}  // namespace hanji::report
