#pragma once

namespace hanji::base {

/// Columns of text for a reader whose terminal is not known, or who reads a file.
inline constexpr int kTerminalColumns = 80;

/// Columns of the terminal behind the descriptor `fd`; kTerminalColumns if there is none or it has no width.
int terminal_columns(int fd);

}  // namespace hanji::base
