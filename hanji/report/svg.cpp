#include "hanji/report/internal/svg.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "hanji/base/text.h"

namespace hanji::report::internal {
namespace {

int64_t tenths(double value) { return std::llround(value * 10); }

std::string from_tenths(int64_t value) {
  const std::string sign = value < 0 ? "-" : "";
  const int64_t size = value < 0 ? -value : value;
  return size % 10 == 0 ? fmt::format("{}{}", sign, size / 10)
                        : fmt::format("{}{}.{}", sign, size / 10, size % 10);
}

/// Goes along an outline of columns, forwards or backwards, to places that are rounded one by one, so that no rounding
/// adds up.
std::string outline(double left, double width, const std::vector<double>& heights, bool forward) {
  std::string text;
  const auto count = static_cast<int64_t>(heights.size());
  const auto border = [&](int64_t i) { return tenths(left + width * static_cast<double>(i)); };
  int64_t at = border(forward ? 0 : count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t column = forward ? i : count - 1 - i;
    const bool is_last = i + 1 == count;
    const int64_t next = forward ? column + 1 : column - 1;
    const int64_t rise = is_last ? 0 : tenths(heights[next]) - tenths(heights[column]);
    if (!is_last && rise == 0) continue;
    const int64_t end = border(forward ? column + 1 : column);
    text += "h" + from_tenths(end - at);
    at = end;
    if (!is_last) text += "v" + from_tenths(rise);
  }
  return text;
}

}  // namespace

std::string svg_number(double value) { return from_tenths(tenths(value)); }

std::string attribute(std::string_view text) {
  std::string out;
  for (const char c : base::xml_escape(text)) out += c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

void SvgPath::rectangle(double x, double y, double width, double height) {
  data_ += fmt::format("M{} {}h{}v{}h{}z", svg_number(x), svg_number(y), svg_number(width),
                       svg_number(height), svg_number(-width));
}

void SvgPath::diamond(double x, double y, double radius) {
  const std::string r = svg_number(radius), back = svg_number(-radius);
  data_ += fmt::format("M{} {}l{} {} {} {} {} {}z", svg_number(x - radius), svg_number(y), r, back,
                       r, r, back, r);
}

void SvgPath::line(double x0, double y0, double x1, double y1) {
  data_ +=
      fmt::format("M{} {}L{} {}", svg_number(x0), svg_number(y0), svg_number(x1), svg_number(y1));
}

void SvgPath::band(double left, double column_width, const std::vector<double>& upper,
                   const std::vector<double>& lower) {
  if (upper.empty()) return;
  data_ += fmt::format("M{} {}", svg_number(left), svg_number(upper.front()));
  data_ += outline(left, column_width, upper, true);
  data_ += fmt::format("V{}", svg_number(lower.back()));
  data_ += outline(left, column_width, lower, false) + "z";
}

void SvgPath::ribbon(const std::vector<Range>& points) {
  if (points.empty()) return;
  std::string there, back;
  bool is_line = true;
  for (const Range& one : points) {
    there +=
        fmt::format("{}{} {}", there.empty() ? "M" : "L", svg_number(one.x), svg_number(one.upper));
    back = fmt::format("L{} {}", svg_number(one.x), svg_number(one.lower)) + back;
    is_line = is_line && tenths(one.upper) == tenths(one.lower);
  }
  data_ += there;
  if (!is_line) data_ += back + "z";
}

std::string SvgPath::element(std::string_view css_class, std::string_view title) const {
  if (data_.empty()) return "";
  if (title.empty()) return fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, data_);
  return fmt::format("<path class=\"{}\" d=\"{}\"><title>{}</title></path>\n", css_class, data_,
                     base::xml_escape(title));
}

std::string svg_text(double x, double y, std::string_view css_class, Anchor anchor,
                     std::string_view text) {
  constexpr std::string_view kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\"{}>{}</text>\n", css_class, svg_number(x),
                     svg_number(y), kAnchors[static_cast<int>(anchor)], base::xml_escape(text));
}

std::string svg_picture(std::string_view name, double width, double height,
                        std::string_view content) {
  return fmt::format(
      "<svg role=\"img\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\">\n<title>{}</title>\n"
      "{}</svg>\n",
      svg_number(width), svg_number(height), svg_number(width), svg_number(height),
      base::xml_escape(name), content);
}

std::vector<double> round_values(double low, double high, int count) {
  std::vector<double> values;
  if (!(high > low) || count < 1) return values;
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  for (double i = std::ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); ++i) {
    values.push_back(i * step + 0.0);  // -0 becomes 0
  }
  return values;
}

}  // namespace hanji::report::internal
