#pragma once

#include <string>
#include <vector>

#include "hanji/base/terminal.h"

namespace hanji::topology {

/// A kind of link as its specification names it.
struct NominalLink {
  std::string family{};                ///< "PCIe", "NVLink", "NVSwitch", "InfiniBand", "Ethernet".
  std::string name{};                  ///< "PCIe 5 x16".
  double bytes_per_second = 0;         ///< One way, after line coding and before packet headers.
  double duplex_bytes_per_second = 0;  ///< Both ways together.
  double hop_seconds = 0;      ///< A hop in the cost model of NCCL; specifications name no latency.
  double latency_seconds = 0;  ///< A small message, one way, as published; 0: no figure was found.
  std::string latency_source{};  ///< Its ends and who published it; empty without a figure.
  int year = 0;                  ///< Year of the generation of a network; 0: not told.
  std::string rate{};            ///< How the figure comes about: "32 GT/s x 16 x 128/130".
  std::string source{};
};

/// PCIe 3-6 at x1 to x16, NVLink 1-5, NVSwitch, InfiniBand SDR-XDR (4x), Ethernet.
///
/// Source  the `source` and `latency_source` of each; hops: NCCL 2.30.7, graph/tuning.cc, protocol LL.
std::vector<NominalLink> nominal_links();

/// Transfer rate times lanes times coding: 8b/10b (generations 1-2), 128b/130b (3-5), and 242 of
/// 256 bytes of a flit (6).
///
/// Result  bytes per second one way; 0 for a generation other than 1 to 6.
double pcie_bytes_per_second(int generation, int lanes);
/// The generation whose transfer rate this is (2.5, 5, 8, 16, 32, 64 GT/s); 0: none.
int pcie_generation(double giga_transfers_per_second);
/// One link (a GPU has several) one way; 0 for a generation other than 1 to 5.
double nvlink_bytes_per_second(int generation);

/// The links, then the kinds of GPUDirect (direct_paths.h).
std::string nominal_text(int columns = base::kTerminalColumns);
/// One object per link, then one per kind of GPUDirect, as an array.
std::string nominal_json();

}  // namespace hanji::topology
