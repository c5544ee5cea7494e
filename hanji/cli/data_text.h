#pragma once

#include <string>
#include <vector>

#include "hanji/data/beton_file.h"

namespace hanji::cli {

/// Header, fields, table of records, heap with each page, allocation table; ends with a line break.
/// Cost    one pass over the allocation table.
std::string beton_info_text(const std::string& path, const data::BetonFile& file);
std::string beton_info_json(const std::string& path, const data::BetonFile& file);

/// What verification found; `file` is null if it could not be opened, which is a mistake then.
std::string beton_mistakes_text(const std::string& path, const data::BetonFile* file,
                                const std::vector<data::BetonMistake>& mistakes);
std::string beton_mistakes_json(const std::string& path, const data::BetonFile* file,
                                const std::vector<data::BetonMistake>& mistakes);

}  // namespace hanji::cli
