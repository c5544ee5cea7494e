#include "hanji/topology/direct_paths.h"

#include <fmt/format.h>

#include "hanji/base/text.h"
#include "hanji/topology/graph.h"
#include "hanji/topology/nominal.h"

namespace hanji::topology {
namespace {

std::string pcie_rate(int generation, int lanes) {
  return fmt::format("PCIe {} x{} {}", generation, lanes,
                     format_rate(pcie_bytes_per_second(generation, lanes)));
}

}  // namespace

std::vector<DirectPath> direct_paths() {
  return {
      {.name = "GPUDirect P2P",
       .what = "GPUs of one host read and write the memory of each other",
       .path = "GPU - NVLink or PCIe - GPU",
       .without = "two copies through memory of the host",
       .bound = fmt::format("the link between the two: {} without NVLink", pcie_rate(5, 16)),
       .source = "NVIDIA, GPUDirect Storage Design Guide, introduction (read 2026-11)"},
      {.name = "GPUDirect RDMA",
       .what = "a network adapter reads and writes the memory of a GPU",
       .path = "GPU - PCIe - adapter - network - adapter - PCIe - GPU",
       .without = "a copy through memory of the host on each side",
       .bound = fmt::format("the slowest of the network and the PCIe links: an adapter of 400 "
                            "Gbit/s has {} on {}",
                            format_rate(400e9 / 8), pcie_rate(5, 16)),
       .source = "NVIDIA, GPUDirect Storage Design Guide, introduction (read 2026-11)"},
      {.name = "GPUDirect Storage",
       .what = "a drive, or the adapter to remote storage, reads and writes the memory of a GPU; "
               "programs call cuFile",
       .path = "drive - PCIe - GPU",
       .without = "a bounce buffer in memory of the host; cuFile then does this by itself",
       .bound = fmt::format("the slower of the drives together ({} each) and the link of the GPU "
                            "({})",
                            pcie_rate(5, 4), pcie_rate(5, 16)),
       .source = "NVIDIA, GPUDirect Storage Design Guide (read 2026-11)"},
      {.name = "GPUDirect Async",
       .what = "a GPU itself starts the work of a network adapter and waits for it, from a stream "
               "or from a kernel; in NCCL since 2.28",
       .path = "kernel - doorbell of the adapter; the bytes go as with RDMA",
       .without = "a thread of the CPU takes the request and calls the adapter",
       .bound = "no other rate than RDMA; latency: a small message takes 16.7 us there and back "
                "from kernels",
       .source = "Hamidouche et al., arXiv 2511.15076 (2025-11)"},
  };
}

std::string direct_paths_text(int columns) {
  std::string text;
  for (const DirectPath& one : direct_paths()) {
    text += one.name + "\n";
    text += base::wrap(fmt::format("  what     {}\n  path     {}\n  without  {}\n  bound    {}\n"
                                   "  source   {}\n",
                                   one.what, one.path, one.without, one.bound, one.source),
                       columns, 9);
  }
  return text;
}

base::Json direct_path_json(const DirectPath& path) {
  return {{"family", "GPUDirect"}, {"name", path.name},       {"what", path.what},
          {"path", path.path},     {"without", path.without}, {"bound", path.bound},
          {"source", path.source}};
}

}  // namespace hanji::topology
