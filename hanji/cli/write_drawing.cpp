#include "hanji/cli/write_drawing.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "hanji/base/file.h"

namespace hanji::cli {

namespace {

struct Kind {
  std::string_view option, opening, name;
};

/// `known`: the text of a file that `content` may replace contains it, and begins as `kind` says.
void write_over(const std::string& path, const std::string& content, const Kind& kind,
                std::string_view known) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw Error(base::invalid_argument(fmt::format(
        "{} {}: is a folder; name a file, such as {}", kind.option, path,
        (std::filesystem::path(path) / (kind.option == "--svg" ? "drawing.svg" : "report.html"))
            .string())));
  }
  if (std::filesystem::is_regular_file(path, error)) {  // writing says what else is wrong
    const auto found = base::MappedFile::open(path).or_throw();
    const std::string_view old(reinterpret_cast<const char*>(found.bytes().data()),
                               found.bytes().size());
    if (!old.empty() && (!old.starts_with(kind.opening) || old.find(known) == old.npos)) {
      throw Error(base::invalid_argument(fmt::format(
          "{} {}: exists and is no {}; name another file", kind.option, path, kind.name)));
    }
  }
  base::throw_if_error(base::write_file_atomic(path, content));
}

}  // namespace

void write_drawing(const std::string& path, const std::string& svg) {
  write_over(path, svg, {"--svg", "<svg", "SVG"}, "<svg");
}

void write_page(const std::string& path, const std::string& html) {
  write_over(path, html, {"--html", "<!doctype html>", "report of hanji"}, "<title>hanji report");
}

}  // namespace hanji::cli
