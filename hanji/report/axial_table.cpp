#include "hanji/report/axial_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/report/collective_cost.h"

namespace hanji::report {
namespace {

using layout::AxialBlock;
using layout::AxialMove;

struct AxialSums {
  int64_t forward = 0, backward = 0;
};

AxialSums sums_of(const std::vector<AxialMove>& moves) {
  AxialSums sums;
  for (const AxialMove& move : moves) {
    sums.forward += move.forward;
    sums.backward += move.backward;
  }
  return sums;
}

std::string alternatives_of(const AxialMove& move, int64_t element_bytes) {
  std::string text;
  for (const auto& [name, elements] : move.alternatives) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        base::format_bytes(elements * element_bytes));
  }
  return text;
}

std::string title_of(const AxialBlock& block) {
  std::string sequences;
  if (block.sequences > 0)
    sequences = fmt::format(" and {}", base::counted(block.sequences, "sequence"));
  return fmt::format("a block of {}{} on {} rank{}, pairs {} wide",
                     base::counted(block.residues, "residue"), sequences, block.ranks,
                     block.ranks == 1 ? "" : "s", block.width);
}

/// Of the first rank, which has most.
int64_t pair_bytes(const AxialBlock& block, int64_t element_bytes) {
  const int64_t rows = layout::axial_rows(block.residues, 0, block.ranks);
  return rows * block.residues * block.width * element_bytes;
}

constexpr int kMaxRanksListed = 8;

/// Rows at the end of a sample that a rank computes for nothing.
int64_t padded_rows(const AxialBlock& block, const layout::Range& rows) {
  return std::clamp<int64_t>(rows.end - (block.residues - block.padded), 0, rows.size());
}

/// "0-6, 7 of them".
std::string range_text(const layout::Range& range) {
  return range.size() == 0
             ? "none"
             : fmt::format("{}-{}, {} of them", range.begin, range.end - 1, range.size());
}

std::string mask_text(const AxialBlock& block) {
  std::string text = fmt::format("{0} x {0}", block.residues);
  if (block.sequences > 0) text += fmt::format(" and {} x {}", block.sequences, block.residues);
  return text + ", whole";
}

base::Json rows_json(const AxialBlock& block) {
  base::Json ranks = base::Json::array();
  for (int rank = 0; rank < block.ranks; ++rank) {
    const layout::Range rows = layout::axial_range(block.residues, rank, block.ranks);
    const layout::Range own = layout::axial_range(block.sequences, rank, block.ranks);
    ranks.push_back({{"rank", rank},
                     {"rows", {rows.begin, rows.end}},
                     {"padded_rows", padded_rows(block, rows)},
                     {"sequences", {own.begin, own.end}}});
  }
  return ranks;
}

std::string rows_words(const AxialBlock& block, int64_t element_bytes) {
  const bool is_even = block.residues % block.ranks == 0 && block.sequences % block.ranks == 0;
  std::string text =
      is_even ? "Rows are even: the ranks divide them."
              : "Rows are uneven: the first ranks have one more, none is added to fill up.";
  text += fmt::format(
      " The mask says which residues and elements a sample has; it is a constant of {} that no "
      "rank sends, and each reads the rows or columns that it computes.",
      base::format_bytes(layout::axial_mask_elements(block) * element_bytes));
  text +=
      block.padded > 0
          ? " Padded rows are computed as the others are and masked: the last ranks have them."
          : " Residues that a sample does not have (--padded) lie at the end, so the last ranks "
            "compute them, for nothing.";
  return text + "\n";
}

constexpr double kSquare = 64, kLine = 84, kLeftSide = 300;
constexpr std::array<std::string_view, 8> kColours = {"#2f5c9e", "#b7d5ac", "#f3d58a", "#c77d6b",
                                                      "#7396c8", "#6b8f5e", "#a88bc0", "#8f8f8f"};

std::string layout_square(std::string_view layout, int ranks, double x, double y) {
  const bool by_columns = layout == "columns" || layout == "residues";
  std::string svg;
  for (int rank = 0; rank < ranks; ++rank) {
    const double begin = kSquare * rank / ranks, size = kSquare / ranks;
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
        "fill=\"{}\"/>\n",
        x + (by_columns ? begin : 0), y + (by_columns ? 0 : begin), by_columns ? size : kSquare,
        by_columns ? kSquare : size, kColours[rank % kColours.size()]);
  }
  return svg;
}

std::string_view name_of(layout::TriangleWay way) {
  return layout::kTriangleWayNames[static_cast<size_t>(way)];
}

std::string svg_text(double x, double y, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y, base::xml_escape(text));
}

}  // namespace

std::string axial_table(const AxialBlock& block, int64_t element_bytes, int columns) {
  const std::vector<AxialMove> moves = axial_moves(block);
  std::string text = title_of(block) + "; bytes that all ranks send together\n\n";
  using enum base::TextTable::Align;
  base::TextTable table({{"operation", kLeft},
                         {"layout", kLeft},
                         {"moves", kLeft},
                         {"forward"},
                         {"backward"},
                         {"forward by other ways", kLeft}});
  for (const AxialMove& move : moves) {
    const std::string layouts = move.before == move.after
                                    ? std::string(move.before)
                                    : fmt::format("{} -> {}", move.before, move.after);
    const std::string what =
        move.what.empty() ? "nothing" : fmt::format("{}: {}", move.what, move.collective);
    table.add({std::string(move.operation), layouts, what,
               base::format_bytes(move.forward * element_bytes),
               base::format_bytes(move.backward * element_bytes),
               alternatives_of(move, element_bytes)});
  }
  const auto [forward, backward] = sums_of(moves);
  table.add({"together", "", "", base::format_bytes(forward * element_bytes),
             base::format_bytes(backward * element_bytes)});
  text += table.text(columns) + "\n";
  text += base::wrap(
      "layout: what a rank has: rows or columns of pairs; of the rest whole sequences, or some "
      "residues of all. moves: what, and by which call or way. other ways: what other calls to the "
      "same layout would send\n\n",
      columns);
  text += fmt::format(
      "a rank has {} of the {} of a pair tensor; a triangle product takes {} "
      "beside parts of three of them\n",
      base::format_bytes(pair_bytes(block, element_bytes)),
      base::format_bytes(block.residues * block.residues * block.width * element_bytes),
      base::format_bytes(triangle_elements(block) * element_bytes));
  return text;
}

std::string axial_rows_table(const AxialBlock& block, int64_t element_bytes, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"rank"},
                         {"rows of pairs", kLeft},
                         {"padded"},
                         {block.sequences > 0 ? "sequences" : "", kLeft},
                         {"mask", kLeft}});
  for (int rank = 0; rank < block.ranks; ++rank) {
    if (block.ranks > kMaxRanksListed && rank == kMaxRanksListed - 1) {
      table.add({"..."});
      rank = block.ranks - 1;
    }
    const layout::Range rows = layout::axial_range(block.residues, rank, block.ranks);
    const layout::Range own = layout::axial_range(block.sequences, rank, block.ranks);
    table.add({std::to_string(rank), range_text(rows), std::to_string(padded_rows(block, rows)),
               block.sequences > 0 ? range_text(own) : "", mask_text(block)});
  }
  return "\n" + table.text(columns) + base::wrap(rows_words(block, element_bytes), columns);
}

std::string triangle_table(const std::vector<cost::TriangleCost>& ways, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"two triangles", kLeft},
                         {"sent, all ranks"},
                         {"kept beside, a rank"},
                         {"while it runs, a rank"},
                         {"seconds"}});
  for (const cost::TriangleCost& one : ways) {
    table.add({std::string(name_of(one.way)), base::format_bytes(one.moved_bytes),
               base::format_bytes(one.kept_bytes), base::format_bytes(one.passing_bytes),
               one.seconds > 0 ? base::format_seconds(one.seconds) : "not known"});
  }
  return "\n" + table.text(columns);
}

std::string axial_json(const AxialBlock& block, int64_t element_bytes,
                       const std::vector<cost::TriangleCost>& ways) {
  base::Json operations = base::Json::array();
  const std::vector<AxialMove> moves = axial_moves(block);
  for (const AxialMove& move : moves) {
    base::Json others = base::Json::object();
    for (const auto& [name, elements] : move.alternatives) {
      others[std::string(name)] = elements * element_bytes;
    }
    operations.push_back({{"operation", move.operation},
                          {"before", move.before},
                          {"after", move.after},
                          {"what", move.what},
                          {"collective", move.collective},
                          {"forward_bytes", move.forward * element_bytes},
                          {"backward_bytes", move.backward * element_bytes},
                          {"alternatives", std::move(others)}});
  }
  base::Json triangles = base::Json::array();
  for (const cost::TriangleCost& one : ways) {
    triangles.push_back({{"way", name_of(one.way)},
                         {"moved_bytes", one.moved_bytes},
                         {"kept_bytes", one.kept_bytes},
                         {"passing_bytes", one.passing_bytes},
                         {"seconds", one.seconds}});
  }
  const auto [forward, backward] = sums_of(moves);
  const base::Json json = {
      {"operations", std::move(operations)},
      {"rows", rows_json(block)},
      {"mask_bytes_per_rank", layout::axial_mask_elements(block) * element_bytes},
      {"triangle", name_of(block.triangle)},
      {"triangles", std::move(triangles)},
      {"forward_bytes", forward * element_bytes},
      {"backward_bytes", backward * element_bytes},
      {"pair_bytes_per_rank", pair_bytes(block, element_bytes)},
      {"triangle_bytes_per_rank", triangle_elements(block) * element_bytes}};
  return base::dump(json, 1) + "\n";
}

std::string axial_svg(const AxialBlock& block, int64_t element_bytes) {
  const std::vector<AxialMove> moves = axial_moves(block);
  const double height = 60 + kLine * static_cast<double>(moves.size() + 1);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {0:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"900\" height=\"{0:.0f}\" "
      "fill=\"#ffffff\"/>\n",
      height);
  svg += svg_text(12, 26, title_of(block));
  double y = 46;
  for (const AxialMove& move : moves) {
    svg += svg_text(12, y + kSquare / 2 + 4, move.operation);
    svg += layout_square(move.before, block.ranks, kLeftSide, y);
    svg += layout_square(move.after, block.ranks, kLeftSide + 330, y);
    const std::string what =
        move.what.empty() ? "nothing moves" : fmt::format("{}: {}", move.what, move.collective);
    svg += svg_text(kLeftSide + 84, y + 26, what);
    if (!move.what.empty()) {
      svg += svg_text(kLeftSide + 84, y + 46, base::format_bytes(move.forward * element_bytes));
    }
    svg += svg_text(kLeftSide + 406, y + kSquare / 2 + 4,
                    move.before == move.after ? std::string(move.after)
                                              : fmt::format("{} -> {}", move.before, move.after));
    y += kLine;
  }
  const double there = kSquare * static_cast<double>(block.residues - block.padded) /
                       static_cast<double>(block.residues);
  svg += svg_text(12, y + kSquare / 2 + 4, "mask of pairs");
  svg += fmt::format(
      "<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{2}\" fill=\"none\" "
      "stroke=\"#333333\"/>\n<rect x=\"{0}\" y=\"{1}\" width=\"{3:.2f}\" height=\"{3:.2f}\" "
      "fill=\"#d9d9d9\"/>\n",
      kLeftSide, y, kSquare, there);
  svg += svg_text(kLeftSide + 84, y + kSquare / 2 + 4, "whole on every rank");
  return svg + "</svg>\n";
}

}  // namespace hanji::report
