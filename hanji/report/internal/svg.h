#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hanji::report::internal {

/// A coordinate with one digit after the point where it needs one; never "-0".
std::string svg_number(double value);

/// `text` as the value of an attribute between double quotes.
std::string attribute(std::string_view text);

/// The data of a path: all shapes of one colour.
class SvgPath {
 public:
  void rectangle(double x, double y, double width, double height);
  /// A square on its corner, around (x, y).
  void diamond(double x, double y, double radius);
  void line(double x0, double y0, double x1, double y1);
  /// The area between two outlines, which are constant over each of consecutive columns that begin at `left`.
  void band(double left, double column_width, const std::vector<double>& upper,
            const std::vector<double>& lower);
  /// The area between an upper and a lower line through these points; a line where both are the same.
  struct Range {
    double x = 0, upper = 0, lower = 0;
  };
  void ribbon(const std::vector<Range>& points);

  bool empty() const { return data_.empty(); }
  /// <path class="..." d="..."/>, with a tooltip where `title` is not empty; nothing without data.
  std::string element(std::string_view css_class, std::string_view title = {}) const;

 private:
  std::string data_;
};

enum class Anchor { kStart, kMiddle, kEnd };
std::string svg_text(double x, double y, std::string_view css_class, Anchor anchor,
                     std::string_view text);

/// A picture with a name for those who do not see it.
std::string svg_picture(std::string_view name, double width, double height,
                        std::string_view content);

/// At most about `count` round values in [low, high]: steps of 1, 2 or 5 times a power of ten.
std::vector<double> round_values(double low, double high, int count);

}  // namespace hanji::report::internal
