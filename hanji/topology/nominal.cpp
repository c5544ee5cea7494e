#include "hanji/topology/nominal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/topology/graph.h"

namespace hanji::topology {
namespace {

constexpr double kPcieHop = 1.0e-6;
constexpr double kNvlinkHop = 0.6e-6;
constexpr double kNetworkHop = 2.7e-6;

struct PcieGeneration {
  double giga_transfers;
  double payload, of;  ///< Line coding.
};
constexpr std::array<PcieGeneration, 6> kPcie = {
    {{2.5, 8, 10}, {5, 8, 10}, {8, 128, 130}, {16, 128, 130}, {32, 128, 130}, {64, 242, 256}}};

struct NvlinkGeneration {
  double gigabytes;  ///< Of one link, one way.
  int links;
  const char* gpu;
};
constexpr std::array<NvlinkGeneration, 5> kNvlink = {
    {{20, 4, "P100"}, {25, 6, "V100"}, {25, 12, "A100"}, {25, 18, "H100"}, {50, 18, "B200"}}};

struct Lane {
  const char* name;
  double gigabits;     ///< Signalled, or the data rate where no coding is given.
  double payload, of;  ///< Line coding; 1 of 1 where `gigabits` is data.
};
constexpr std::array<Lane, 8> kInfiniband = {{{"SDR", 2.5, 8, 10},
                                              {"DDR", 5, 8, 10},
                                              {"QDR", 10, 8, 10},
                                              {"FDR", 14.0625, 64, 66},
                                              {"EDR", 25.78125, 64, 66},
                                              {"HDR", 50, 1, 1},
                                              {"NDR", 100, 1, 1},
                                              {"XDR", 200, 1, 1}}};

struct EthernetRate {
  double gigabits;
  const char* standard;
};
constexpr std::array<EthernetRate, 9> kEthernet = {{{1, "802.3ab"},
                                                    {10, "802.3ae"},
                                                    {25, "802.3by"},
                                                    {40, "802.3ba"},
                                                    {50, "802.3cd"},
                                                    {100, "802.3ba"},
                                                    {200, "802.3bs"},
                                                    {400, "802.3bs"},
                                                    {800, "802.3df"}}};

std::string coding(double payload, double of) {
  return of == 1 ? "" : fmt::format(" x {}/{}", payload, of);
}

void add_pcie(std::vector<NominalLink>& all) {
  for (int generation = 3; generation <= 6; ++generation) {
    const PcieGeneration& one = kPcie[generation - 1];
    for (const int lanes : {1, 2, 4, 8, 16}) {
      all.push_back({.family = "PCIe",
                     .name = fmt::format("PCIe {} x{}", generation, lanes),
                     .bytes_per_second = pcie_bytes_per_second(generation, lanes),
                     .hop_seconds = kPcieHop,
                     .rate = fmt::format("{} GT/s x {}{}", one.giga_transfers, lanes,
                                         coding(one.payload, one.of)),
                     .source = fmt::format("PCI Express Base Specification {}.0", generation)});
    }
  }
}

void add_nvlink(std::vector<NominalLink>& all, bool through_switch) {
  for (int generation = through_switch ? 2 : 1; generation <= 5; ++generation) {
    const NvlinkGeneration& one = kNvlink[generation - 1];
    const std::string name = through_switch ? fmt::format("NVSwitch {}, any pair", generation - 1)
                                            : fmt::format("NVLink {} x{}", generation, one.links);
    all.push_back({.family = through_switch ? "NVSwitch" : "NVLink",
                   .name = fmt::format("{} ({})", name, one.gpu),
                   .bytes_per_second = nvlink_bytes_per_second(generation) * one.links,
                   .hop_seconds = kNvlinkHop,
                   .rate = fmt::format("{} links x {} GB/s", one.links, one.gigabytes),
                   .source = fmt::format("NVIDIA, {} architecture", one.gpu)});
  }
}

void add_networks(std::vector<NominalLink>& all) {
  for (const Lane& lane : kInfiniband) {
    all.push_back(
        {.family = "InfiniBand",
         .name = fmt::format("InfiniBand {} 4x", lane.name),
         .bytes_per_second = lane.gigabits * 1e9 / 8 * 4 * lane.payload / lane.of,
         .hop_seconds = kNetworkHop,
         .rate = fmt::format("4 x {} Gbit/s{}", lane.gigabits, coding(lane.payload, lane.of)),
         .source = "InfiniBand Architecture Specification, volume 2"});
  }
  for (const EthernetRate& one : kEthernet) {
    all.push_back({.family = "Ethernet",
                   .name = fmt::format("Ethernet {}G", one.gigabits),
                   .bytes_per_second = one.gigabits * 1e9 / 8,
                   .hop_seconds = kNetworkHop,
                   .rate = fmt::format("{} Gbit/s", one.gigabits),
                   .source = fmt::format("IEEE {}", one.standard)});
  }
}

}  // namespace

double pcie_bytes_per_second(int generation, int lanes) {
  if (generation < 1 || generation > static_cast<int>(kPcie.size())) return 0;
  const PcieGeneration& one = kPcie[generation - 1];
  return one.giga_transfers * 1e9 / 8 * lanes * one.payload / one.of;
}

int pcie_generation(double giga_transfers_per_second) {
  for (size_t index = 0; index < kPcie.size(); ++index) {
    if (kPcie[index].giga_transfers == giga_transfers_per_second)
      return static_cast<int>(index) + 1;
  }
  return 0;
}

double nvlink_bytes_per_second(int generation) {
  if (generation < 1 || generation > static_cast<int>(kNvlink.size())) return 0;
  return kNvlink[generation - 1].gigabytes * 1e9;
}

std::vector<NominalLink> nominal_links() {
  std::vector<NominalLink> all;
  add_pcie(all);
  add_nvlink(all, false);
  add_nvlink(all, true);
  add_networks(all);
  for (NominalLink& link : all) link.duplex_bytes_per_second = 2 * link.bytes_per_second;
  return all;
}

std::string nominal_text(int columns) {
  using enum base::TextTable::Align;
  base::TextTable rates({{"link", kLeft}, {"one way"}, {"duplex"}, {"rate", kLeft}});
  base::TextTable families({{"family", kLeft}, {"latency"}, {"source", kLeft}});
  std::vector<std::string> family;  // name, latency, then the sources of its links
  const auto end_family = [&] {
    if (!family.empty()) {
      families.add({family[0], family[1],
                    fmt::format("{}", fmt::join(family.begin() + 2, family.end(), "; "))});
    }
    family.clear();
  };
  for (const NominalLink& link : nominal_links()) {
    rates.add({link.name, format_rate(link.bytes_per_second),
               format_rate(link.duplex_bytes_per_second), link.rate});
    if (family.empty() || family[0] != link.family) {
      end_family();
      family = {link.family, fmt::format("{:.1f} us", link.hop_seconds * 1e6)};
    }
    if (std::ranges::find(family, link.source) == family.end()) family.push_back(link.source);
  }
  end_family();
  return rates.text(columns) + "\n" + families.text(columns) +
         base::wrap(
             "\nGB = 10^9 bytes. Rates are after line coding and before packet headers. "
             "Specifications name no latency: it is that of one hop in the cost model of NCCL "
             "2.30.7 (graph/tuning.cc, protocol LL).\n",
             columns);
}

std::string nominal_json() {
  base::Json all = base::Json::array();
  for (const NominalLink& link : nominal_links()) {
    all.push_back({{"family", link.family},
                   {"name", link.name},
                   {"bytes_per_second", link.bytes_per_second},
                   {"duplex_bytes_per_second", link.duplex_bytes_per_second},
                   {"hop_seconds", link.hop_seconds},
                   {"hop_source", "NCCL 2.30.7, graph/tuning.cc, protocol LL"},
                   {"rate", link.rate},
                   {"source", link.source}});
  }
  return base::dump(all, 1) + "\n";
}

}  // namespace hanji::topology
