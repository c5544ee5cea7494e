#pragma once

#include <string_view>

namespace hanji::cli {

/// Columns of standard output; base::kTerminalColumns where it is no terminal.
int output_columns();

/// Writes `text` to standard output: as it is if programs read it, else in lines of at most output_columns(),
/// broken at blanks.
void print_text(std::string_view text, bool as_json);

}  // namespace hanji::cli
