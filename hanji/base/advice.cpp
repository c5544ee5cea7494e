#include "hanji/base/advice.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace hanji::base {
namespace {

struct Advice {
  int error;
  std::string_view text;
};

constexpr std::array kAdvice = {
    Advice{EACCES, "give this user the permission, or name another path"},
    Advice{ENOENT, "check the path"},
    Advice{EROFS, "name a path on a disk that can be written"},
    Advice{EISDIR, "name a file, not a folder"},
    Advice{ENOTDIR, "name a folder there"},
    Advice{EEXIST, "remove what is there, or name another path"},
    Advice{ENOTEMPTY, "remove what is there, or name another path"},
    Advice{ENAMETOOLONG, "name a shorter path"},
    Advice{ELOOP, "name a path without links that lead to themselves"},
    Advice{EFBIG, "raise the limit on the size of files (ulimit -f), or name another disk"},
    Advice{ETXTBSY, "end the program that runs from this file, or name another path"},
    Advice{ENXIO, "name a regular file"},
    Advice{ENODEV, "name a regular file"},
    Advice{EMFILE, "raise that limit (ulimit -n)"},
    Advice{ENFILE, "raise the limit on open files of all processes (sysctl fs.file-max)"}};

}  // namespace

std::string_view advice_for(int error) {
  const auto* found = std::ranges::find(kAdvice, error, &Advice::error);
  return found == kAdvice.end() ? std::string_view() : found->text;
}

std::string with_advice(std::string_view message, std::string_view advice) {
  for (const Advice& one : kAdvice) {
    const std::string ending = "; " + std::string(one.text);
    if (!message.ends_with(ending)) continue;
    message.remove_suffix(ending.size());
    break;
  }
  return std::string(message) + "; " + std::string(advice);
}

}  // namespace hanji::base
