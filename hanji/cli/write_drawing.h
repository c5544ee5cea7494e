#pragma once

#include <string>

namespace hanji::cli {

/// Writes the SVG of --svg there, whole or not at all. It takes the place of another drawing, but of no
/// other file.
/// Errors  throws Error: kInvalidArgument for a file that is no SVG; those of base::write_file_atomic().
void write_drawing(const std::string& path, const std::string& svg);

}  // namespace hanji::cli
