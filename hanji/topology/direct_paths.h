#pragma once

#include <string>
#include <vector>

#include "hanji/base/json.h"
#include "hanji/base/terminal.h"

namespace hanji::topology {

/// A kind of NVIDIA's GPUDirect: a path to the memory of a GPU that leaves out the host's.
struct DirectPath {
  std::string name{};     ///< "GPUDirect Storage".
  std::string what{};     ///< The parts that then reach the memory or the work of each other.
  std::string path{};     ///< "drive - PCIe - GPU".
  std::string without{};  ///< The path of the same bytes where it is missing.
  std::string
      bound{};  ///< The link that bounds its rate, with the rate; or the time that it saves.
  std::string source{};  ///< With its date.
};

/// P2P, RDMA, Storage, Async. Rates are those of nominal.h.
std::vector<DirectPath> direct_paths();

/// A paragraph for each.
std::string direct_paths_text(int columns = base::kTerminalColumns);
/// {"family": "GPUDirect", "name", "what", "path", "without", "bound", "source"}.
base::Json direct_path_json(const DirectPath& path);

}  // namespace hanji::topology
