#include "hanji/report/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hanji/base/text.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

constexpr double kRooflineWidth = 720, kRooflineHeight = 400, kRooflineLeft = 64,
                 kRooflineRight = 16, kRooflineTop = 16, kRooflineBottom = 48;
constexpr size_t kMaxRooflinePoints = 24;  ///< Later ones take less time than shows.

struct PlacedOperation {
  OperationRow row;
  RoofPoint point;
  size_t number = 0;
};

/// A logarithmic axis of whole decades.
struct Decades {
  int first = 0, last = 1;

  void include(double value) {
    first = std::min(first, static_cast<int>(std::floor(std::log10(value))));
    last = std::max(last, static_cast<int>(std::ceil(std::log10(value))));
  }
  double share(double value) const { return (std::log10(value) - first) / (last - first); }
};

class RooflinePicture {
 public:
  RooflinePicture(const OperationsRecord& record, std::vector<PlacedOperation> points)
      : record_(record), points_(std::move(points)) {
    const double ridge = record.roof.flops_per_second / record.roof.bytes_per_second;
    x_.first = x_.last = static_cast<int>(std::floor(std::log10(ridge)));
    y_.first = y_.last = static_cast<int>(std::floor(std::log10(record.roof.flops_per_second)));
    x_.include(ridge * 4);
    y_.include(record.roof.flops_per_second * 1.5);
    for (const PlacedOperation& one : points_) {
      x_.include(one.point.flops_per_byte);
      y_.include(one.point.flops_per_second);
    }
  }

  std::string svg() const {
    std::string text = fmt::format(
        "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" width=\"100%\" fill=\"none\" "
        "font-size=\"12\"><title>Roofline of rank {}: {}</title>\n",
        kRooflineWidth, kRooflineHeight, record_.rank,
        base::counted(std::ssize(points_), "operation"));
    text += grid() + roof();
    for (const PlacedOperation& one : points_) text += marker(one);
    return text + "</svg>\n";
  }

 private:
  double x(double flops_per_byte) const {
    return kRooflineLeft +
           x_.share(flops_per_byte) * (kRooflineWidth - kRooflineLeft - kRooflineRight);
  }
  double y(double flops_per_second) const {
    return kRooflineHeight - kRooflineBottom -
           y_.share(flops_per_second) * (kRooflineHeight - kRooflineTop - kRooflineBottom);
  }

  static std::string line(double x1, double y1, double x2, double y2, std::string_view rest) {
    return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"currentColor\" {}/>\n",
                       x1, y1, x2, y2, rest);
  }

  static std::string label(double x, double y, std::string_view anchor, const std::string& text) {
    return fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"currentColor\" text-anchor=\"{}\">{}</text>\n", x,
        y, anchor, text);
  }

  std::string grid() const {
    constexpr std::string_view kFaint = "stroke-opacity=\"0.15\"";
    std::string text;
    for (int decade = x_.first; decade <= x_.last; ++decade) {
      const double at = x(std::pow(10.0, decade));
      text += line(at, kRooflineTop, at, kRooflineHeight - kRooflineBottom, kFaint);
      text += label(at, kRooflineHeight - kRooflineBottom + 16, "middle",
                    fmt::format("{}", std::pow(10.0, decade)));
    }
    for (int decade = y_.first; decade <= y_.last; ++decade) {
      const double at = y(std::pow(10.0, decade));
      text += line(kRooflineLeft, at, kRooflineWidth - kRooflineRight, at, kFaint);
      text +=
          label(kRooflineLeft - 6, at + 4, "end", fmt::format("{}", std::pow(10.0, decade - 9)));
    }
    text += label((kRooflineLeft + kRooflineWidth - kRooflineRight) / 2, kRooflineHeight - 10,
                  "middle", "flop/byte");
    return text + label(kRooflineLeft + 6, kRooflineTop + 14, "start", "GF/s");
  }

  std::string roof() const {
    const Roof& roof = record_.roof;
    const double ridge = roof.flops_per_second / roof.bytes_per_second;
    // The slope begins where it leaves the picture, at its left or at its bottom.
    const double from =
        std::max(std::pow(10.0, x_.first), std::pow(10.0, y_.first) / roof.bytes_per_second);
    return fmt::format(
               "<path class=\"roof\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}\" "
               "stroke=\"currentColor\" stroke-width=\"2\"/>\n",
               x(from), y(from * roof.bytes_per_second), x(ridge), y(roof.flops_per_second),
               kRooflineWidth - kRooflineRight, y(roof.flops_per_second)) +
           label(kRooflineWidth - kRooflineRight, y(roof.flops_per_second) - 6, "end",
                 fmt::format("{:.1f} GF/s of products", roof.flops_per_second * 1e-9)) +
           label(x(from) + 6, y(from * roof.bytes_per_second) + 20, "start",
                 fmt::format("{:.1f} GB/s of memory", roof.bytes_per_second * 1e-9));
  }

  std::string marker(const PlacedOperation& one) const {
    const double part = one.row.seconds / record_.seconds;
    const double radius = 4 + 40 * std::sqrt(part / std::numbers::pi);
    const bool is_above = one.point.share.value_or(0) > 1;
    const double cx = x(one.point.flops_per_byte), cy = y(one.point.flops_per_second);
    return fmt::format(
               "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"#5b8dd6\" "
               "fill-opacity=\"0.45\" stroke=\"currentColor\"{}><title>{}. {}, {}: {:.1f} % of the "
               "time, {:.2f} flop/byte, {:.1f} GF/s, {:.0f} % of the roof{}</title></circle>\n",
               is_above ? "above" : "point", cx, cy, radius,
               is_above ? " stroke-dasharray=\"3 2\"" : "", one.number,
               base::xml_escape(one.row.operation), base::xml_escape(one.row.phase), 100 * part,
               one.point.flops_per_byte, one.point.flops_per_second * 1e-9,
               100 * one.point.share.value_or(0), is_above ? ": above it" : "") +
           label(cx, cy + 4, "middle", fmt::format("{}", one.number));
  }

  const OperationsRecord& record_;
  const std::vector<PlacedOperation> points_;
  Decades x_, y_;
};

}  // namespace

std::string roofline_svg(const OperationsRecord& record) {
  if (record.roof.flops_per_second <= 0 || record.roof.bytes_per_second <= 0) {
    return "<p>No roofline: the rates of this host were not measured.</p>\n";
  }
  std::vector<PlacedOperation> points;
  const std::vector<OperationRow> rows = by_operation(record);
  for (size_t i = 0; i < rows.size() && points.size() < kMaxRooflinePoints; ++i) {
    const RoofPoint point = roof_point(rows[i], record.roof);
    if (point.flops_per_byte > 0 && point.flops_per_second > 0)
      points.push_back({rows[i], point, i + 1});
  }
  if (points.empty()) return "<p>No roofline: no operation with flops was profiled.</p>\n";
  double without_flops = 0;
  for (const OperationRow& row : rows) without_flops += row.flops > 0 ? 0 : row.seconds;
  return RooflinePicture(record, std::move(points)).svg() +
         fmt::format(
             "<p>Operations without flops and what lies between operations take {:.1f} % of "
             "the time; the table has them.</p>\n",
             100 * without_flops / record.seconds);
}

}  // namespace hanji::report
