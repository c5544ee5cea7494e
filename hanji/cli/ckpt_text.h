#pragma once

#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/checkpoint/diff.h"
#include "hanji/checkpoint/load.h"

namespace hanji::cli {

/// A checkpoint that was looked at: what it says of itself, or why it is not good.
struct Inspected {
  std::string name;  ///< Its folder's.
  bool is_latest = false;
  Result<checkpoint::Checkpoint> content;
};

/// Tables for people and JSON for programs; each ends with a line break.
std::string list_text(const std::vector<Inspected>& all, int columns = base::kTerminalColumns);
std::string list_json(const std::vector<Inspected>& all);
std::string show_text(const checkpoint::Checkpoint& checkpoint,
                      int columns = base::kTerminalColumns);
std::string show_json(const checkpoint::Checkpoint& checkpoint);
/// All tensors of a safetensors file, those too that hanji does not read, and its metadata.
std::string show_file_text(const std::string& path, const checkpoint::SafetensorsFile& file,
                           int columns = base::kTerminalColumns);
std::string show_file_json(const std::string& path, const checkpoint::SafetensorsFile& file);
std::string diff_text(const std::vector<checkpoint::Difference>& differences);
std::string diff_json(const std::vector<checkpoint::Difference>& differences);

}  // namespace hanji::cli
