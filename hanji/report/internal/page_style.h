#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hanji::report::internal {

/// Colours of a page by what they say, each in the light and in the dark scheme: "#rrggbb".
enum class PageColour : uint8_t {
  kBackground,
  kText,
  kMuted,
  kGrid,
  kForward,  ///< And computing as such.
  kBackward,
  kOptimizer,
  kData,
  kTransfer,
  kSkew,
  kOnFill,  ///< Text on forward, backward and optimizer.
  kLink
};
struct PageColours {
  std::string_view name, light, dark;
};
PageColours colours_of(PageColour colour);

/// A class of elements of a picture: its colour, and one on which it may lie.
struct PictureClass {
  std::string_view name;
  PageColour colour;
  PageColour on;
  double least_contrast;  ///< By WCAG 2.2: 4.5 of text, 3 of graphics, 0 of decoration.
};
/// All classes of <text> and of shapes; one that may lie on several colours has a row for each.
std::span<const PictureClass> picture_classes();

/// (lighter + 0.05) / (darker + 0.05) of the relative luminances of two colours "#rrggbb".
/// Source  WCAG 2.2, "contrast ratio".
double contrast_ratio(std::string_view one, std::string_view other);

/// The content of <style>: both schemes, print, narrow screens.
std::string page_style();

}  // namespace hanji::report::internal
