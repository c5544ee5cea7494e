#pragma once

#include <filesystem>
#include <vector>

#include "hanji/topology/gpus.h"
#include "hanji/topology/graph.h"

namespace hanji::topology {

/// What decides which kinds of GPUDirect work here.
struct GpuDirectFacts {
  int num_gpus = 0;          ///< NVIDIA GPUs that NVML or PCI shows.
  std::string gpus_unknown;  ///< Why NVML told nothing; empty if it did.
  std::vector<PeerAccess> peers;
  int num_rdma_nics = 0;           ///< Entries of /sys/class/infiniband (InfiniBand or RoCE).
  bool has_peermem = false;        ///< The kernel module nvidia_peermem (or nv_peer_mem).
  bool has_dma_buf = false;        ///< Open kernel modules of NVIDIA on Linux 5.12 or later.
  bool has_gdrdrv = false;         ///< The kernel module gdrdrv.
  bool has_gdrdrv_device = false;  ///< /dev/gdrdrv.
};

/// Reads modules, devices and versions below `root`.
GpuDirectFacts read_gpu_direct_facts(const Graph& graph, const GpuReport& report,
                                     const std::filesystem::path& root = "/");

/// P2P (GPU to GPU), RDMA (GPU to NIC), GDRCopy (processor to GPU memory), each with its reason.
std::vector<Capability> judge_gpu_direct(const GpuDirectFacts& facts);

}  // namespace hanji::topology
