#include "hanji/topology/nominal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/text_table.h"
#include "hanji/topology/direct_paths.h"
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
  int year;
  double gigabits;      ///< Signalled, or the data rate where no coding is given.
  double payload, of;   ///< Line coding; 1 of 1 where `gigabits` is data.
  double microseconds;  ///< From adapter to adapter; 0: no figure was found.
};
constexpr std::array<Lane, 8> kInfiniband = {{{"SDR", 2001, 2.5, 8, 10, 5},
                                              {"DDR", 2005, 5, 8, 10, 2.5},
                                              {"QDR", 2007, 10, 8, 10, 1.3},
                                              {"FDR", 2011, 14.0625, 64, 66, 0.7},
                                              {"EDR", 2014, 25.78125, 64, 66, 0.5},
                                              {"HDR", 2018, 50, 1, 1, 0.6},
                                              {"NDR", 2022, 100, 1, 1, 0},
                                              {"XDR", 2024, 200, 1, 1, 0}}};

struct EthernetRate {
  double gigabits;
  const char* standard;
  int year;
  double microseconds;  ///< Over TCP, from program to program; 0: no figure was found.
};
constexpr std::array<EthernetRate, 9> kEthernet = {{{1, "802.3ab", 1999, 0},
                                                    {10, "802.3ae", 2002, 10},
                                                    {25, "802.3by", 2016, 0},
                                                    {40, "802.3ba", 2010, 0},
                                                    {50, "802.3cd", 2018, 0},
                                                    {100, "802.3ba", 2010, 0},
                                                    {200, "802.3bs", 2017, 0},
                                                    {400, "802.3bs", 2017, 0},
                                                    {800, "802.3df", 2024, 0}}};

constexpr const char* kInfinibandLatency =
    "of adapters, Wikipedia, InfiniBand (read 2026-11); HDR is below its figure";
constexpr const char* kEthernetLatency =
    "program to program over TCP, Larsen et al., SBAC-PAD 2007, at best";

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
         .latency_seconds = lane.microseconds * 1e-6,
         .latency_source = lane.microseconds > 0 ? kInfinibandLatency : "",
         .year = lane.year,
         .rate = fmt::format("4 x {} Gbit/s{}", lane.gigabits, coding(lane.payload, lane.of)),
         .source = "InfiniBand Architecture Specification, volume 2"});
  }
  for (const EthernetRate& one : kEthernet) {
    all.push_back({.family = "Ethernet",
                   .name = fmt::format("Ethernet {}G", one.gigabits),
                   .bytes_per_second = one.gigabits * 1e9 / 8,
                   .hop_seconds = kNetworkHop,
                   .latency_seconds = one.microseconds * 1e-6,
                   .latency_source = one.microseconds > 0 ? kEthernetLatency : "",
                   .year = one.year,
                   .rate = fmt::format("{} Gbit/s", one.gigabits),
                   .source = fmt::format("IEEE {}-{}", one.standard, one.year)});
  }
}

std::string latency_text(const NominalLink& link) {
  return link.latency_seconds > 0 ? fmt::format("{:.2g} us", link.latency_seconds * 1e6)
                                  : "no figure found";
}

std::string notes_text() {
  return fmt::format(
      "\nGB = 10^9 bytes. Rates are after line coding and before packet headers.\n"
      "since: the year of the standard (Ethernet), of the generation (InfiniBand, as "
      "Wikipedia has it).\n"
      "latency: of a small message, one way; no specification names one. InfiniBand: {}. Ethernet: "
      "{}; over RoCE it is 1.3 us (Mellanox, ConnectX-2 EN with RoCE, 2010-04): the protocol "
      "decides, more than the generation.\n"
      "hop: one hop in the cost model of NCCL 2.30.7 (graph/tuning.cc, protocol LL), which has one "
      "figure for all networks.\n",
      kInfinibandLatency, kEthernetLatency);
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
  base::TextTable networks({{"network", kLeft}, {"since"}, {"latency"}});
  base::TextTable families({{"family", kLeft}, {"hop"}, {"source of rates", kLeft}});
  std::vector<std::string> family;  // name, hop, then the sources of its links
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
    if (link.year > 0) networks.add({link.name, std::to_string(link.year), latency_text(link)});
    if (family.empty() || family[0] != link.family) {
      end_family();
      family = {link.family, fmt::format("{:.1f} us", link.hop_seconds * 1e6)};
    }
    if (std::ranges::find(family, link.source) == family.end()) family.push_back(link.source);
  }
  end_family();
  return rates.text(columns) + "\n" + networks.text(columns) + "\n" + families.text(columns) +
         base::wrap(notes_text(), columns) + "\n" + direct_paths_text(columns);
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
                   {"latency_seconds",
                    link.latency_seconds > 0 ? base::Json(link.latency_seconds) : base::Json()},
                   {"latency_source", link.latency_source},
                   {"year", link.year > 0 ? base::Json(link.year) : base::Json()},
                   {"rate", link.rate},
                   {"source", link.source}});
  }
  for (const DirectPath& one : direct_paths()) all.push_back(direct_path_json(one));
  return base::dump(all, 1) + "\n";
}

}  // namespace hanji::topology
