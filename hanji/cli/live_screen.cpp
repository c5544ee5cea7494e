#include "hanji/cli/live_screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "hanji/base/terminal.h"
#include "hanji/base/text.h"

namespace hanji::cli {
namespace {

constexpr int kRows = 24;

}  // namespace

bool LiveScreen::is_terminal() { return isatty(STDOUT_FILENO) != 0; }

int LiveScreen::columns() { return base::terminal_columns(STDOUT_FILENO); }

int LiveScreen::rows() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return is_known ? size.ws_row : kRows;
}

void LiveScreen::draw(std::string_view page) {
  std::string text;
  if (is_terminal() && !widths_.empty()) {
    // A terminal that is narrower now has broken the lines of the last page.
    int above = 0;
    for (const int width : widths_) above += std::max(1, (width + columns() - 1) / columns());
    text = fmt::format("\r\033[{}A\033[J", std::min(above, rows() - 1));
  }
  widths_.clear();
  for (const std::string_view line : base::split(page, '\n')) {
    widths_.push_back(static_cast<int>(base::text_columns(line)));
  }
  if (!widths_.empty()) widths_.pop_back();  // behind the last line break
  std::cout << text << page << std::flush;
}

}  // namespace hanji::cli
