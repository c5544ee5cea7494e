#include <fmt/format.h>

#include <algorithm>

#include "hanji/topology/gpus.h"
#include "hanji/topology/internal/pci.h"
#include "hanji/topology/nominal.h"

namespace hanji::topology {
namespace {

int find_or_add(Graph& graph, const std::string& bus_id, VertexKind kind) {
  const int found = find_bus_id(graph, bus_id);
  if (found >= 0) return found;
  Vertex vertex;
  vertex.kind = kind;
  vertex.bus_id = bus_id;
  vertex.pci_vendor = kNvidia;
  vertex.id = fmt::format("{}:{}", name_of(kind), bus_id);
  vertex.name = fmt::format("{} {}", kind == VertexKind::kGpu ? "GPU" : "NVSwitch", bus_id);
  return graph.add(std::move(vertex), 0,
                   {.kind = LinkKind::kPcie,
                    .label = "PCI",
                    .unknown = "NVML names it, but PCI does not show its place"});
}

/// All links of one GPU to one peer.
struct Bundle {
  NvlinkPort port;
  int count = 0;
};

std::vector<Bundle> bundles_of(const Gpu& gpu) {
  std::vector<Bundle> bundles;
  for (const NvlinkPort& port : gpu.nvlinks) {
    auto same = std::ranges::find(bundles, port, &Bundle::port);
    if (same == bundles.end()) same = bundles.insert(same, {port, 0});
    ++same->count;
  }
  return bundles;
}

Link link_of(const Bundle& bundle) {
  const int generation = bundle.port.generation;
  Link link{.kind = LinkKind::kNvlink};
  link.label = generation > 0 ? fmt::format("NVLink {} x{}", generation, bundle.count)
                              : fmt::format("NVLink x{}", bundle.count);
  link.bytes_per_second = nvlink_bytes_per_second(generation) * bundle.count;
  if (generation == 0) link.unknown = "NVML does not name the generation";
  return link;
}

void add_bundle(Graph& graph, int gpu, const Bundle& bundle) {
  const NvlinkPort& port = bundle.port;
  Link link = link_of(bundle);
  const bool is_placed = !port.peer_bus_id.empty() &&
                         (port.peer == NvlinkPeer::kGpu || port.peer == NvlinkPeer::kSwitch);
  if (!is_placed) {
    const char* what = port.peer == NvlinkPeer::kOther ? "a processor" : "an unknown peer";
    graph.vertices[gpu].facts.push_back(
        {link.label, fmt::format("to {} {}", what, port.peer_bus_id)});
    return;
  }
  const auto kind = port.peer == NvlinkPeer::kGpu ? VertexKind::kGpu : VertexKind::kNvswitch;
  link.from = gpu;
  link.to = find_or_add(graph, port.peer_bus_id, kind);
  const bool is_told_by_peer = std::ranges::any_of(graph.links, [&](const Link& other) {
    return other.kind == LinkKind::kNvlink && other.from == link.to && other.to == link.from;
  });
  if (!is_told_by_peer) graph.links.push_back(std::move(link));
}

}  // namespace

void add_gpus(Graph& graph, const GpuReport& report) {
  if (!report.unknown.empty()) graph.notes.push_back({"GPUs", report.unknown, false});
  if (!report.driver.empty()) graph.notes.push_back({"NVIDIA driver", report.driver});
  std::vector<int> places;
  for (const Gpu& gpu : report.gpus) {
    const int place = find_or_add(graph, gpu.bus_id, VertexKind::kGpu);
    places.push_back(place);
    std::ranges::copy(gpu.facts, std::back_inserter(graph.vertices[place].facts));
  }
  for (size_t index = 0; index < report.gpus.size(); ++index) {
    for (const Bundle& bundle : bundles_of(report.gpus[index])) {
      add_bundle(graph, places[index], bundle);
    }
  }
}

}  // namespace hanji::topology
