#include "hanji/cli/print_text.h"

#include <unistd.h>

#include <iostream>

#include "hanji/base/terminal.h"
#include "hanji/base/text.h"

namespace hanji::cli {
namespace {

constexpr int kHanging = 2;

}  // namespace

int output_columns() { return base::terminal_columns(STDOUT_FILENO); }

void print_text(std::string_view text, bool as_json) {
  if (as_json) {
    std::cout << text << std::flush;
  } else {
    std::cout << base::wrap(text, output_columns(), kHanging) << std::flush;
  }
}

}  // namespace hanji::cli
