#pragma once

#include <string>

namespace hanji::cli {

/// Writes the SVG of --svg there, whole or not at all. It takes the place of another drawing, but of no
/// other file.
/// Errors  throws Error: kInvalidArgument for a file that is no SVG, and for a folder; those of
///         base::write_file_atomic().
void write_drawing(const std::string& path, const std::string& svg);

/// The same for the page of --html, which takes the place of another page of hanji alone.
void write_page(const std::string& path, const std::string& html);

}  // namespace hanji::cli
