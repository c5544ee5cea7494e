#include "hanji/report/internal/page_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace hanji::report::internal {
namespace {

constexpr std::array<PageColours, 12> kColours = {{{"background", "#ffffff", "#12161c"},
                                                   {"text", "#1b1f24", "#e6e9ee"},
                                                   {"muted", "#57606a", "#a4adb8"},
                                                   {"grid", "#dfe3e8", "#2c343e"},
                                                   {"forward", "#2457a0", "#8ab4f0"},
                                                   {"backward", "#0f7285", "#5cc3d4"},
                                                   {"optimizer", "#7a4a9e", "#c8a2ea"},
                                                   {"data", "#3f7d20", "#8ccf6a"},
                                                   {"transfer", "#b04a00", "#f0a35c"},
                                                   {"skew", "#5d6570", "#b5bdc8"},
                                                   {"on-fill", "#ffffff", "#0c0f13"},
                                                   {"link", "#0b57a8", "#8ab4f0"}}};

constexpr std::array<PictureClass, 16> kClasses = {{
    {"label", PageColour::kText, PageColour::kBackground, 4.5},
    {"note", PageColour::kMuted, PageColour::kBackground, 4.5},
    {"in-fill", PageColour::kOnFill, PageColour::kForward, 4.5},
    {"in-fill", PageColour::kOnFill, PageColour::kBackward, 4.5},
    {"in-fill", PageColour::kOnFill, PageColour::kOptimizer, 4.5},
    {"grid", PageColour::kGrid, PageColour::kBackground, 0},
    {"cover", PageColour::kBackground, PageColour::kBackground, 0},
    {"forward", PageColour::kForward, PageColour::kBackground, 3},
    {"backward", PageColour::kBackward, PageColour::kBackground, 3},
    {"optimizer", PageColour::kOptimizer, PageColour::kBackground, 3},
    {"data", PageColour::kData, PageColour::kBackground, 3},
    {"transfer", PageColour::kTransfer, PageColour::kBackground, 3},
    {"skew", PageColour::kSkew, PageColour::kBackground, 3},
    {"curve", PageColour::kForward, PageColour::kBackground, 3},
    {"mark", PageColour::kTransfer, PageColour::kBackground, 3},
    {"planned", PageColour::kText, PageColour::kBackground, 3},
}};

/// The style of page and tables; that of pictures follows.
constexpr std::string_view kLayout = R"(*{box-sizing:border-box}
body{margin:0;background:var(--background);color:var(--text);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
main{max-width:960px;margin:0 auto;padding:16px}
h1{font-size:1.3rem;line-height:1.3;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--grid);padding-bottom:.25rem}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p{margin:.5rem 0;max-width:75ch;overflow-wrap:anywhere}
.verdict{font-size:1.15rem;border-left:4px solid var(--link);padding:.25rem 0 .25rem .75rem;margin:1rem 0}
.quiet,caption,figcaption{color:var(--muted);font-size:.875rem}
a{color:var(--link)}
figure{margin:1rem 0}
.scroll{overflow-x:auto}
.scroll svg{display:block;width:100%;min-width:640px;height:auto}
.scroll:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;margin:.75rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.25rem 0}
th,td{padding:.25rem .75rem .25rem 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td.words,th.words{text-align:left}
thead th{color:var(--muted);font-weight:600}
tbody th{font-weight:500}
.facts tbody th{white-space:normal;vertical-align:top}
td.words{white-space:normal;min-width:16ch;overflow-wrap:anywhere}
ul.key{list-style:none;margin:.5rem 0;padding:0;display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.875rem}
ul.key svg{vertical-align:-2px;margin-right:.25rem}
details{margin:1rem 0}
summary{cursor:pointer;padding:.25rem 0;min-height:24px}
pre{font:13px/1.4 "DejaVu Sans Mono",monospace;margin:.5rem 0}
.patterns{position:absolute}
)";

/// Shapes beside their colour; `fill` and `stroke` of others are their colour.
constexpr std::string_view kPictures = R"(svg text{font:11px system-ui,"DejaVu Sans",sans-serif}
.grid,.planned,.shortest{fill:none}
.grid{stroke:var(--grid)}
.planned{stroke:var(--text);stroke-dasharray:6 4;stroke-width:1.5}
.curve{stroke:var(--forward);stroke-width:1.5;stroke-linejoin:round}
.curve.thin{fill:none}
.skew{fill:url(#skew)}
.data{fill:url(#data)}
.skew-line,.data-line{stroke-width:2}
.skew-line{stroke:var(--skew)}
.data-line{stroke:var(--data)}
)";

constexpr std::string_view kMedia =
    R"(@media print{main{max-width:none;padding:0}figure,table,section>p{break-inside:avoid}
h2,h3{break-after:avoid}.scroll{overflow:visible}.scroll svg{min-width:0}
svg *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

std::string variables(bool dark) {
  std::string text;
  for (const PageColours& one : kColours) {
    text += fmt::format("--{}:{};", one.name, dark ? one.dark : one.light);
  }
  return text;
}

double luminance(std::string_view colour) {
  constexpr std::array kWeights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    const std::string digits(colour.substr(1 + 2 * i, 2));
    const double value = static_cast<double>(std::strtol(digits.c_str(), nullptr, 16)) / 255;
    sum +=
        kWeights[i] * (value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
  }
  return sum;
}

}  // namespace

PageColours colours_of(PageColour colour) { return kColours[static_cast<size_t>(colour)]; }

std::span<const PictureClass> picture_classes() { return kClasses; }

double contrast_ratio(std::string_view one, std::string_view other) {
  const double a = luminance(one), b = luminance(other);
  return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
}

std::string page_style() {
  std::string text = fmt::format(
      ":root{{color-scheme:light dark;{}}}\n@media screen and "
      "(prefers-color-scheme:dark){{:root{{{}}}}}\n",
      variables(false), variables(true));
  text += kLayout;
  std::string_view before;
  for (const PictureClass& one : kClasses) {
    if (one.name == before) continue;
    before = one.name;
    text += fmt::format(".{}{{fill:var(--{})}}\n", one.name, colours_of(one.colour).name);
  }
  return text + std::string(kPictures) + std::string(kMedia);
}

}  // namespace hanji::report::internal
