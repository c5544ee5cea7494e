#include "hanji/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace hanji::base {

int terminal_columns(int fd) {
  winsize size{};
  const bool is_known = isatty(fd) != 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kTerminalColumns;
}

}  // namespace hanji::base
