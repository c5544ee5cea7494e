#include "hanji/topology/gpu_direct.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "hanji/topology/internal/pci.h"
#include "hanji/topology/link_rates.h"

namespace hanji::topology {
namespace {

Capability possible(std::string name, std::string reason) {
  return {std::move(name), Verdict::kPossible, std::move(reason)};
}
Capability impossible(std::string name, std::string reason) {
  return {std::move(name), Verdict::kImpossible, std::move(reason)};
}

Capability judge_p2p(const GpuDirectFacts& facts) {
  constexpr const char* kName = "P2P";
  if (facts.num_gpus == 0) return impossible(kName, "no NVIDIA GPU is seen");
  if (facts.num_gpus == 1) return impossible(kName, "a single GPU has no peer");
  if (facts.peers.empty()) return {kName, Verdict::kUnknown, facts.gpus_unknown};
  const auto is = [](Verdict verdict) {
    return [verdict](const PeerAccess& pair) { return pair.verdict == verdict; };
  };
  const auto works = std::ranges::count_if(facts.peers, is(Verdict::kPossible));
  const auto pairs = static_cast<std::ptrdiff_t>(facts.peers.size());
  if (works == pairs) return possible(kName, fmt::format("all {} pairs", pairs));
  const auto first = std::ranges::find_if_not(facts.peers, is(Verdict::kPossible));
  const std::string reason = fmt::format("{} of {} pairs; GPUs {} and {}: {}", works, pairs,
                                         first->first, first->second, first->reason);
  if (works > 0) return possible(kName, reason);
  const auto refused = std::ranges::count_if(facts.peers, is(Verdict::kImpossible));
  return {kName, refused == pairs ? Verdict::kImpossible : Verdict::kUnknown, reason};
}

Capability judge_rdma(const GpuDirectFacts& facts) {
  constexpr const char* kName = "RDMA";
  if (facts.num_gpus == 0) return impossible(kName, "no NVIDIA GPU is seen");
  if (facts.num_rdma_nics == 0)
    return impossible(kName, "no RDMA NIC: /sys/class/infiniband is empty");
  if (facts.has_peermem) return possible(kName, "the module nvidia_peermem is loaded");
  if (facts.has_dma_buf) return possible(kName, "by dma-buf: NVIDIA's open kernel modules");
  return impossible(kName,
                    "neither nvidia_peermem nor NVIDIA's open kernel modules on Linux 5.12 or "
                    "later; modprobe nvidia_peermem");
}

Capability judge_gdrcopy(const GpuDirectFacts& facts) {
  constexpr const char* kName = "GDRCopy";
  if (facts.num_gpus == 0) return impossible(kName, "no NVIDIA GPU is seen");
  if (facts.has_gdrdrv_device) return possible(kName, "/dev/gdrdrv is there");
  if (facts.has_gdrdrv) {
    return impossible(kName, "the module gdrdrv is loaded, but /dev/gdrdrv is not there; make it");
  }
  return impossible(kName, "the module gdrdrv is not loaded; install gdrcopy and modprobe gdrdrv");
}

bool is_at_least(const std::string& release, int major, int minor) {
  int has_major = 0, has_minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &has_major, &has_minor) != 2) return false;
  return has_major > major || (has_major == major && has_minor >= minor);
}

}  // namespace

GpuDirectFacts read_gpu_direct_facts(const Graph& graph, const GpuReport& report,
                                     const std::filesystem::path& root) {
  const auto is_there = [&](const char* path) {
    std::error_code error;
    return std::filesystem::exists(root / path, error);
  };
  GpuDirectFacts facts;
  facts.num_gpus = static_cast<int>(std::ranges::count_if(graph.vertices, [](const Vertex& vertex) {
    return vertex.kind == VertexKind::kGpu && vertex.pci_vendor == kNvidia;
  }));
  facts.gpus_unknown = report.unknown;
  facts.peers = report.peers;
  facts.num_rdma_nics = static_cast<int>(names_in_class(root, "infiniband").size());
  facts.has_peermem = is_there("sys/module/nvidia_peermem") || is_there("sys/module/nv_peer_mem");
  const std::string driver = read_line(root / "proc/driver/nvidia/version");
  facts.has_dma_buf = driver.find("Open Kernel Module") != std::string::npos &&
                      is_at_least(read_line(root / "proc/sys/kernel/osrelease"), 5, 12);
  facts.has_gdrdrv = is_there("sys/module/gdrdrv");
  facts.has_gdrdrv_device = is_there("dev/gdrdrv");
  return facts;
}

std::vector<Capability> judge_gpu_direct(const GpuDirectFacts& facts) {
  return {judge_p2p(facts), judge_rdma(facts), judge_gdrcopy(facts)};
}

}  // namespace hanji::topology
