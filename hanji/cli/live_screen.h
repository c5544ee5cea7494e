#pragma once

#include <string_view>
#include <vector>

namespace hanji::cli {

/// A page on standard output that is drawn again over itself. The terminal keeps its state meanwhile: its cursor stays
/// visible below the page, so that nothing need be restored, however the process ends.
class LiveScreen {
 public:
  /// False: standard output is no terminal, and a page is added below the last one.
  static bool is_terminal();
  static int columns();
  /// Lines that fit; 24 where the terminal does not say.
  static int rows();

  /// Draws `page`, whose lines end with a line break, over the page before.
  void draw(std::string_view page);

 private:
  std::vector<int> widths_;  ///< Columns of the lines that were drawn last.
};

}  // namespace hanji::cli
