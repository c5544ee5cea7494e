#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/report/scaling.h"

namespace hanji::report {
namespace {

constexpr double kPlaneLeft = 60, kPlaneTop = 50, kPlaneWidth = 560, kPlaneHeight = 360;
constexpr double kPage = kPlaneTop + kPlaneHeight + 130;

/// The plane of ranks to the right and speed-ups upwards, on one scale.
class Plane {
 public:
  explicit Plane(int most) : most_(most) {}
  double x(double ranks) const { return kPlaneLeft + kPlaneWidth * ranks / most_; }
  double y(double speed_up) const { return kPlaneTop + kPlaneHeight * (1 - speed_up / most_); }
  std::string point(double ranks, double speed_up) const {
    return fmt::format("{:.1f},{:.1f} ", x(ranks), y(speed_up));
  }

 private:
  double most_;
};

std::string label(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     base::xml_escape(text));
}

std::string line(std::string_view points, std::string_view colour, std::string_view dashes) {
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                     points, colour,
                     dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dashes));
}

std::string axes_svg(const Plane& plane, int most) {
  std::string text;
  const int between = std::max(1, most / 8);
  for (int at = 0; at <= most; at += between) {
    text +=
        fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#cccccc\" stroke-width=\"1\"/>\n",
                    kPlaneLeft, plane.y(at), kPlaneLeft + kPlaneWidth);
    text += label(kPlaneLeft - 8, plane.y(at) + 4, "end", std::to_string(at));
    text += label(plane.x(at), kPlaneTop + kPlaneHeight + 18, "middle", std::to_string(at));
  }
  text += label(kPlaneLeft + kPlaneWidth / 2, kPlaneTop + kPlaneHeight + 38, "middle", "ranks");
  return text + label(kPlaneLeft - 8, kPlaneTop - 10, "start", "times as fast as one rank");
}

std::string legend_svg() {
  constexpr double kY = kPlaneTop + kPlaneHeight + 62;
  std::string text = fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"#1c1c1c\"/>\n",
                                 kPlaneLeft + 15, kY - 4);
  text += label(kPlaneLeft + 36, kY, "start", "measured; hollow: ranks outnumber the cores");
  const auto row = [&](int at, std::string_view colour, std::string_view dashes,
                       std::string_view what) {
    const double y = kY + 20 * at;
    text +=
        line(fmt::format("{},{} {},{}", kPlaneLeft, y - 4, kPlaneLeft + 30, y - 4), colour, dashes);
    text += label(kPlaneLeft + 36, y, "start", what);
  };
  row(1, "#1f4e8c", "", "by the law; its band holds the truth with 90 %");
  row(2, "#a63d00", "8 4", "at most without communication");
  row(3, "#6b6b6b", "2 4", "as many times as there are ranks");
  return text;
}

}  // namespace

std::string scaling_svg(const ScalingStudy& study) {
  const int most = std::max(study.forecast().ranks, study.sizes.back().point.ranks);
  const Plane plane(most);
  std::string band, upper, law, bound;
  for (const ScalingForecast& one : study.curve) {
    band += plane.point(one.ranks, one.interval.low);
    upper.insert(0, plane.point(one.ranks, one.interval.high));
    law += plane.point(one.ranks, one.speed_up);
    bound += plane.point(one.ranks, one.bound);
  }
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" "
      "font-family=\"monospace\" font-size=\"12\" fill=\"#1c1c1c\">\n<title>{}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kPlaneLeft + kPlaneWidth + 30, kPage, base::xml_escape("speed-up of " + study.job));
  text += label(kPlaneLeft - 8, 20, "start", study.job) + axes_svg(plane, most);
  if (study.doubts.empty()) {
    text += fmt::format("<polygon points=\"{}{}\" fill=\"#1f4e8c\" fill-opacity=\"0.2\"/>\n", band,
                        upper);
  }
  text += line(plane.point(1, 1) + plane.point(most, most), "#6b6b6b", "2 4");
  if (study.doubts.empty()) text += line(bound, "#a63d00", "8 4") + line(law, "#1f4e8c", "");
  for (const ScalingSize& size : study.sizes) {
    text += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\" stroke=\"#1c1c1c\"><title>{}: "
        "{:.2f}</title></circle>\n",
        plane.x(size.point.ranks), plane.y(size.speed_up), size.is_fitted ? "#1c1c1c" : "#ffffff",
        base::counted(size.point.ranks, "rank"), size.speed_up);
  }
  return text + legend_svg() + "</svg>\n";
}

}  // namespace hanji::report
