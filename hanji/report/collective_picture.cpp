#include "hanji/report/collective_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using schedule::Routine;
using Cells = std::vector<std::string>;

std::string letter(int rank) { return std::string(1, static_cast<char>('a' + rank)); }

// Piece `piece` of a rank's own, or all of it.
std::string own(int rank, int piece = -1) {
  return piece < 0 ? letter(rank) : letter(rank) + std::to_string(piece);
}

std::string sum(int ranks, int piece = -1) {
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) text += (rank == 0 ? "" : "+") + own(rank, piece);
  return text;
}

Cells every(int ranks, auto label) {
  Cells cells;
  for (int i = 0; i < ranks; ++i) cells.push_back(label(i));
  return cells;
}

constexpr std::string_view kRuns = "runs", kWaits = "waits";

// Rank 0 comes first; the last has nobody to wait for.
Cells moments(int ranks, int rank) {
  return every(ranks, [&](int moment) { return std::string(moment <= rank ? kRuns : kWaits); });
}

Cells before(Routine routine, int ranks, int root, int rank) {
  switch (routine) {
    case Routine::kBarrier: return moments(ranks, rank);
    case Routine::kSend:
    case Routine::kBroadcast: return {rank == root ? own(rank) : ""};
    case Routine::kScatter:
      if (rank != root) return {""};
      return every(ranks, [&](int piece) { return own(rank, piece); });
    case Routine::kReduceScatter:
    case Routine::kAllToAll: return every(ranks, [&](int piece) { return own(rank, piece); });
    default: return {own(rank)};
  }
}

Cells after(Routine routine, int ranks, int root, int rank) {
  const auto all = [&] { return every(ranks, [](int other) { return own(other); }); };
  switch (routine) {
    case Routine::kBarrier: return {std::string(kRuns)};
    case Routine::kSend: {
      const bool has_it = rank == root || rank == (root + 1) % ranks;
      return {has_it ? own(root) : ""};
    }
    case Routine::kBroadcast: return {own(root)};
    case Routine::kReduce: return {rank == root ? sum(ranks) : ""};
    case Routine::kAllReduce: return {sum(ranks)};
    case Routine::kGather: return rank == root ? all() : Cells{""};
    case Routine::kAllGather: return all();
    case Routine::kScatter: return {own(root, rank)};
    case Routine::kReduceScatter: return {sum(ranks, rank)};
    case Routine::kAllToAll: return every(ranks, [&](int other) { return own(other, rank); });
    default: return {};
  }
}

std::string boxes(const Cells& cells) {
  std::string text;
  for (const std::string& cell : cells) text += fmt::format("[{}]", cell.empty() ? " " : cell);
  return text;
}

const char* fill_of(std::string_view label) {
  if (label.empty()) return "#ffffff";
  if (label == kWaits) return "#f3d58a";
  return label.find('+') == std::string_view::npos ? "#cfe0f3" : "#b7d5ac";
}

// One piece as a box; a sum is darker than what it is made of, nothing is white.
std::string svg_box(double x, double y, double width, const std::string& label) {
  return fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"26\" fill=\"{}\" "
      "stroke=\"#333333\"/><text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n",
      x, y, width, fill_of(label), x + width / 2, y + 18, label);
}

double box_width(const CollectivePicture& picture) {
  size_t longest = 2;
  for (const auto* side : {&picture.before, &picture.after}) {
    for (const Cells& cells : *side) {
      for (const std::string& cell : cells) longest = std::max(longest, cell.size());
    }
  }
  return 9.0 * static_cast<double>(longest) + 14;
}

size_t most_cells(const std::vector<Cells>& side) {
  size_t most = 1;
  for (const Cells& cells : side) most = std::max(most, cells.size());
  return most;
}

}  // namespace

CollectivePicture draw_collective(Routine routine, int ranks, int root) {
  CollectivePicture picture{routine, ranks, root, {}, {}};
  if (routine == Routine::kTreeReduce) return picture;
  for (int rank = 0; rank < ranks; ++rank) {
    picture.before.push_back(before(routine, ranks, root, rank));
    picture.after.push_back(after(routine, ranks, root, rank));
  }
  return picture;
}

std::string to_text(const CollectivePicture& picture) {
  if (picture.before.empty()) return "";
  size_t width = 6;
  for (const Cells& cells : picture.before) width = std::max(width, boxes(cells).size());
  std::string text = fmt::format("{:8}{:<{}}   after\n", "", "before", width);
  for (int rank = 0; rank < picture.ranks; ++rank) {
    text += fmt::format("rank {:<3}{:<{}}   {}\n", rank, boxes(picture.before[rank]), width,
                        boxes(picture.after[rank]));
  }
  return text;
}

std::string legend_of(const CollectivePicture& picture) {
  if (picture.before.empty()) return "";
  if (picture.routine == Routine::kBarrier) {
    return "a box before is a moment: who has come waits until the last has come, then all go on; "
           "nothing moves";
  }
  const auto any = [&](auto holds) {
    return std::ranges::any_of(std::array{&picture.before, &picture.after}, [&](const auto* side) {
      return std::ranges::any_of(
          *side, [&](const Cells& cells) { return std::ranges::any_of(cells, holds); });
    });
  };
  const int letter_of =
      schedule::has_root(picture.routine) || picture.routine == Routine::kSend ? picture.root : 0;
  const auto is_piece = [](const std::string& cell) {
    return cell.size() > 1 && cell[1] >= '0' && cell[1] <= '9';
  };
  std::string text = fmt::format("{}: the buffer of rank {}", letter(letter_of), letter_of);
  if (any(is_piece)) text += fmt::format(", {}: its piece 0", own(letter_of, 0));
  if (any([](const std::string& cell) { return cell.find('+') != std::string::npos; })) {
    text += ", +: elements added up";
  }
  if (any([](const std::string& cell) { return cell.empty(); })) {
    text += ", [ ]: no part of the call";
  }
  return text;
}

std::string to_json(const CollectivePicture& picture) {
  return base::dump(base::Json({{"before", picture.before}, {"after", picture.after}}));
}

std::string to_svg(const CollectivePicture& picture) {
  const double width = box_width(picture);
  const double left = 70, gap = 50;
  const double middle = left + width * static_cast<double>(most_cells(picture.before)) + gap;
  const double right = middle + width * static_cast<double>(most_cells(picture.after)) + 20;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{}\" "
      "font-family=\"monospace\" font-size=\"14\">\n"
      "<text x=\"10\" y=\"22\" font-weight=\"bold\">{}</text>\n"
      "<text x=\"{:.0f}\" y=\"48\">before</text><text x=\"{:.0f}\" y=\"48\">after</text>\n",
      right, 70 + 36 * picture.ranks, name_of(picture.routine), left, middle);
  for (int rank = 0; rank < static_cast<int>(picture.before.size()); ++rank) {
    const double y = 58 + 36 * rank;
    text += fmt::format("<text x=\"10\" y=\"{:.0f}\">rank {}</text>\n", y + 18, rank);
    double x = left;
    for (const std::string& cell : picture.before[rank]) {
      text += svg_box(x, y, width, cell);
      x += width;
    }
    x = middle;
    for (const std::string& cell : picture.after[rank]) {
      text += svg_box(x, y, width, cell);
      x += width;
    }
  }
  return text + "</svg>\n";
}

}  // namespace hanji::report
