#include <fmt/format.h>

#include <algorithm>

#include "hanji/topology/graph_text.h"

namespace hanji::topology {
namespace {

constexpr int kRow = 30, kIndent = 28, kBoxHeight = 22, kMargin = 12;
constexpr double kCharacter = 6.7;  // width in pixels of 11-pixel monospace, rounded up

/// Text between tags; what is not printable ASCII becomes '?'.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c < ' ' || c > '~' ? '?' : c;
    }
  }
  return out;
}

const char* colour_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::kMachine: return "#eceff1";
    case VertexKind::kPackage: return "#cfd8dc";
    case VertexKind::kMemory: return "#ffe0b2";
    case VertexKind::kCache: return "#fff9c4";
    case VertexKind::kCore: return "#e3f2fd";
    case VertexKind::kBridge: return "#f5f5f5";
    case VertexKind::kGpu: return "#c8e6c9";
    case VertexKind::kNic: return "#e1bee7";
    case VertexKind::kDisk: return "#d7ccc8";
    case VertexKind::kNvswitch: return "#a5d6a7";
  }
  return "#ffffff";
}

struct Box {
  int x = 0, y = 0;
  int width = 0;
  int middle() const { return y + kBoxHeight / 2; }
};

/// One row per vertex in the order of the tree, indented by depth.
void place(const Graph& graph, int vertex, int depth, int& row, std::vector<Box>& boxes) {
  const double width = kCharacter * static_cast<double>(describe(graph.vertices[vertex]).size());
  boxes[vertex] = {kMargin + depth * kIndent, kMargin + row * kRow, static_cast<int>(width) + 14};
  ++row;
  for (const int child : children_of(graph, vertex)) place(graph, child, depth + 1, row, boxes);
}

std::string label_of(const Link& link) {
  if (link.kind == LinkKind::kInside) return "";
  if (link.bytes_per_second == 0) return link.label;
  return fmt::format("{}, {}", link.label, format_rate(link.bytes_per_second));
}

std::string text_at(int x, int y, const std::string& text, const char* fill) {
  return fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n", x, y + 4, fill,
                     escape(text));
}

std::string draw_box(const Vertex& vertex, const Box& box) {
  return fmt::format(
             "<rect id=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" "
             "stroke=\"#607d8b\"/>\n",
             escape(vertex.id), box.x, box.y, box.width, kBoxHeight, colour_of(vertex.kind)) +
         text_at(box.x + 7, box.middle(), describe(vertex), "#212121");
}

std::string draw_branch(const Link& link, const Box& from, const Box& to) {
  const int x = from.x + kIndent / 2;
  const std::string line =
      fmt::format("<path d=\"M {} {} V {} H {}\" fill=\"none\" stroke=\"#90a4ae\"/>\n", x,
                  from.y + kBoxHeight, to.middle(), to.x);
  const std::string label = label_of(link);
  return label.empty() ? line : line + text_at(to.x + to.width + 8, to.middle(), label, "#546e7a");
}

/// An arc in the right margin, further out for each further link.
std::string draw_arc(const Link& link, const Box& from, const Box& to, int x) {
  const int out = x + 60;
  return fmt::format(
             "<path d=\"M {} {} C {} {} {} {} {} {}\" fill=\"none\" stroke=\"#2e7d32\" "
             "stroke-width=\"2\"/>\n",
             from.x + from.width, from.middle(), out, from.middle(), out, to.middle(),
             to.x + to.width, to.middle()) +
         text_at(x + 24, (from.middle() + to.middle()) / 2, label_of(link), "#2e7d32");
}

}  // namespace

std::string graph_svg(const Graph& graph) {
  std::vector<Box> boxes(graph.vertices.size());
  int rows = 0;
  if (!boxes.empty()) place(graph, 0, 0, rows, boxes);
  int right = kMargin;
  for (const Link& link : graph.links) {
    const auto label = static_cast<double>(label_of(link).size());
    const Box& box = boxes[link.to];
    right = std::max(right, box.x + box.width + 16 + static_cast<int>(kCharacter * label));
  }
  std::string body;
  int arcs_end = right;
  for (const Link& link : graph.links) {
    const Box &from = boxes[link.from], &to = boxes[link.to];
    if (link.kind != LinkKind::kNvlink) {
      body += draw_branch(link, from, to);
      continue;
    }
    body += draw_arc(link, from, to, arcs_end);
    arcs_end += 40 + static_cast<int>(kCharacter * static_cast<double>(label_of(link).size()));
  }
  for (size_t index = 0; index < boxes.size(); ++index) {
    body += draw_box(graph.vertices[index], boxes[index]);
  }
  const int width = arcs_end + 80, height = 2 * kMargin + rows * kRow;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "font-family=\"monospace\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
      width, height, width, height, body);
}

}  // namespace hanji::topology
