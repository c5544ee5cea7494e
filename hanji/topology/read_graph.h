#pragma once

#include <filesystem>
#include <string>

#include "hanji/base/status.h"
#include "hanji/topology/graph.h"

namespace hanji::topology {

/// Where a graph is read from; as it stands, this host.
struct GraphSource {
  std::string synthetic{};  ///< hwloc's description of an imagined host, e.g. "pack:2 core:4 pu:1".
  std::string xml{};        ///< The content of a file of `lstopo --of xml`.
  std::filesystem::path root = "/";  ///< Below it lie sys/, proc/ and dev/.
  std::string nvml = "libnvidia-ml.so.1";
};

/// The processor's side (packages, NUMA nodes, last-level caches, cores), PCI with its GPUs, NICs
/// and disks, the kernel's rates of their links, NVLink by NVML, and what GPUDirect can do.
///
/// Result  what a part does not tell is an unknown fact or rate with its reason.
/// Cost    milliseconds; starting NVML on a host with GPUs may take seconds.
/// Errors  invalid_argument for a description or XML that hwloc refuses; internal if it cannot
///         read the host.
Result<Graph> read_graph(const GraphSource& source = {});

}  // namespace hanji::topology
