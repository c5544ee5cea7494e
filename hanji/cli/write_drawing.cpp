#include "hanji/cli/write_drawing.h"

#include <filesystem>
#include <string_view>

#include "hanji/base/file.h"

namespace hanji::cli {

void write_drawing(const std::string& path, const std::string& svg) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {  // writing says what else is wrong
    const auto found = base::MappedFile::open(path).or_throw();
    const std::string_view old(reinterpret_cast<const char*>(found.bytes().data()),
                               found.bytes().size());
    if (!old.empty() && !old.starts_with("<svg")) {
      throw Error(
          base::invalid_argument("--svg " + path + ": exists and is no SVG; name another file"));
    }
  }
  base::throw_if_error(base::write_file_atomic(path, svg));
}

}  // namespace hanji::cli
