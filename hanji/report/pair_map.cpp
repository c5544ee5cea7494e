#include "hanji/report/pair_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/status.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

constexpr int64_t kSide = 640, kMargin = 40;

/// From white to dark blue.
std::string shade_of(double value) {
  const double v = std::clamp(value, 0.0, 1.0);
  const auto channel = [&](double dark) {
    return static_cast<int>(std::lround(255 + v * (dark - 255)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(20), channel(52), channel(110));
}

}  // namespace

std::string pair_map_svg(const PairMap& map, std::string_view title) {
  const auto cells = static_cast<size_t>(map.residues * map.residues);
  if (map.found.size() != cells || map.truth.size() != cells) {
    throw Error(base::invalid_argument(fmt::format(
        "a map of {} has {} found and {} true values; give {} of each",
        base::counted(map.residues, "residue"), map.found.size(), map.truth.size(), cells)));
  }
  const double cell = static_cast<double>(kSide) / static_cast<double>(map.residues);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"14\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<text x=\"{2}\" y=\"24\">{3}</text>\n",
      kSide + 2 * kMargin, kSide + 2 * kMargin, kMargin, base::xml_escape(title));
  for (size_t e = 0; e < cells; ++e) {
    const auto row = static_cast<int64_t>(e) / map.residues;
    const auto column = static_cast<int64_t>(e) % map.residues;
    const double value = column > row ? map.found[e] : column < row ? map.truth[e] : 0;
    if (value < 0.004) continue;  // as white as the background
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
        kMargin + static_cast<double>(column) * cell, kMargin + static_cast<double>(row) * cell,
        cell, cell, shade_of(value));
  }
  svg += fmt::format(
      "<rect x=\"{0}\" y=\"{0}\" width=\"{1}\" height=\"{1}\" fill=\"none\" stroke=\"#808080\"/>\n"
      "<line x1=\"{0}\" y1=\"{0}\" x2=\"{2}\" y2=\"{2}\" stroke=\"#808080\"/>\n",
      kMargin, kSide, kMargin + kSide);
  return svg + "</svg>\n";
}

}  // namespace hanji::report
