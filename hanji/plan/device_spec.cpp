#include "hanji/plan/device_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/topology/nominal.h"

namespace hanji::plan {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;
constexpr const char* kOverview = "S. Bekman, Machine Learning Engineering, accelerators";
constexpr const char* kRead = "2026-08";

/// In units of 10^12; 0: not known.
struct Teraflops {
  double bf16 = 0, fp8 = 0, tf32 = 0, fp32 = 0;
};

/// Links of a kind of device, and the network of the host that is sold with it.
struct LinkRow {
  const char* peers;
  int nvlink;
  int pcie;  ///< Generation of its 16 lanes; 0: NVLink-C2C.
  const char* network;
  double network_gigabits;
};
constexpr double kChipToChip = 450e9;  // NVLink-C2C, one way

constexpr LinkRow kVolta = {"NVLink 2", 2, 3, "InfiniBand EDR 4x for two (DGX-1, DGX-2)", 50};
constexpr LinkRow kAmpere = {"NVLink 3", 3, 4, "InfiniBand HDR 4x (DGX A100)", 200};
constexpr LinkRow kHopper = {"NVLink 4", 4, 5, "InfiniBand NDR 4x (DGX H100, H200)", 400};
constexpr LinkRow kGraceHopper = {"NVLink 4", 4, 0, "", 0};
constexpr LinkRow kBlackwell = {"NVLink 5", 5, 5, "InfiniBand NDR 4x (DGX B200)", 400};
constexpr LinkRow kUltra = {"NVLink 5", 5, 6, "InfiniBand XDR 4x (DGX B300)", 800};
constexpr LinkRow kGraceBlackwell = {"NVLink 5", 5, 0, "InfiniBand NDR 4x (GB200 NVL72)", 400};
constexpr LinkRow kMi200 = {"xGMI", 0, 4, "Slingshot 200G (HPE Cray EX235a)", 200};
constexpr LinkRow kMi300 = {"xGMI", 0, 5, "InfiniBand NDR 4x (Azure ND MI300X v5)", 400};
constexpr LinkRow kMi350 = {"xGMI", 0, 5, "", 0};
constexpr LinkRow kGaudi = {"Ethernet of the chip, 24 x 200G", 0, 5, "some of the same ports", 0};

std::vector<DeviceRate> rates_of(std::string_view half, const Teraflops& peak,
                                 const Teraflops& measured) {
  std::vector<DeviceRate> rates;
  const auto add = [&](std::string_view dtype, double most, double found) {
    if (most > 0 || found > 0) rates.push_back({std::string(dtype), most * 1e12, found * 1e12});
  };
  add("fp8", peak.fp8, measured.fp8);
  add(half, peak.bf16, measured.bf16);
  add("tf32", peak.tf32, measured.tf32);
  add("fp32", peak.fp32, measured.fp32);
  return rates;
}

DeviceLinks links_of(const LinkRow& row) {
  const bool has_pcie = row.pcie > 0;
  return {.peers = row.peers,
          .nvlink = row.nvlink,
          .host = has_pcie ? fmt::format("PCIe {} x16", row.pcie) : "NVLink-C2C",
          .host_rate = has_pcie ? topology::pcie_bytes_per_second(row.pcie, 16) : kChipToChip,
          .network = row.network,
          .network_rate = row.network_gigabits * 1e9 / 8};
}

/// What all memories of a kind of device have in common.
struct Kind {
  double
      teraflops;  ///< The fastest product of bf16 measured; where none is known, 0.8 of the peak.
  double link_gigabytes;
  Teraflops peak, measured;
  const LinkRow& links;
  std::string_view half = "bf16";
};

const Kind kV100{100, 150, {.bf16 = 125, .fp32 = 15.7}, {}, kVolta, "fp16"};
const Kind kA100{271.2, 300, {.bf16 = 312, .tf32 = 156, .fp32 = 19.5}, {.bf16 = 271.2}, kAmpere};
const Kind kH100{794.5, 450, {989, 1979, 494.5, 67}, {.bf16 = 794.5, .fp8 = 1402.6}, kHopper};
const Kind kH200{794.5, 450, {989, 1979, 494.5, 67}, {.bf16 = 794.5, .fp8 = 1453.4}, kHopper};
const Kind kGh200{828.6, 450, {989, 1979, 494.5, 67}, {.bf16 = 828.6, .fp8 = 1535}, kGraceHopper};
const Kind kB200{1745, 900, {2250, 4500, 1125, 80}, {.bf16 = 1745, .fp8 = 3432.5}, kBlackwell};
const Kind kB300{1769, 900, {2250, 4500, 1125, 80}, {.bf16 = 1769, .fp8 = 3353.3}, kUltra};
const Kind kGb200{
    1822, 900, {2500, 5000, 1250, 80}, {.bf16 = 1822, .fp8 = 3615.6}, kGraceBlackwell};
const Kind kMi250x{306, 350, {.bf16 = 383, .fp32 = 47.9}, {}, kMi200};
const Kind kMi300x{668.4, 448, {1300, 2610, 653.7, 163.4}, {.bf16 = 668.4}, kMi300};
const Kind kMi325x{784.9, 448, {1300, 2610, 653.7, 163.4}, {.bf16 = 784.9}, kMi350};
const Kind kMi355x{1565, 535.5, {.bf16 = 2500, .fp8 = 5000, .fp32 = 157.3}, {.bf16 = 1565}, kMi350};
const Kind kGaudi3{1243, 600, {1677, 1677, 459, 229}, {.bf16 = 1243, .fp8 = 1289.5}, kGaudi};

DeviceSpec row(const char* name, int64_t gigabytes, double memory_terabytes, const Kind& kind) {
  return {.name = name,
          .memory_bytes = gigabytes * kGigabyte,
          .source = kOverview,
          .date = kRead,
          .flops = kind.teraflops * 1e12,
          .memory_rate = memory_terabytes * 1e12,
          .link_rate = kind.link_gigabytes * 1e9,
          .rates = rates_of(kind.half, kind.peak, kind.measured),
          .links = links_of(kind.links)};
}

const std::array kDevices = {
    row("v100-16", 16, 0.9, kV100),        row("v100-32", 32, 0.9, kV100),
    row("a100-40", 40, 1.555, kA100),      row("a100-80", 80, 2.0, kA100),
    row("h100-80", 80, 3.35, kH100),       row("gh200-96", 96, 4.0, kGh200),
    row("h200-141", 141, 4.8, kH200),      row("b200-180", 180, 8, kB200),
    row("b300-288", 288, 8, kB300),        row("gb200-186", 186, 8, kGb200),
    row("mi250x-128", 128, 3.28, kMi250x), row("mi300x-192", 192, 5.3, kMi300x),
    row("mi325x-256", 256, 6, kMi325x),    row("mi355x-288", 288, 8, kMi355x),
    row("gaudi3-128", 128, 3.7, kGaudi3)};

std::string_view stem_of(const DeviceSpec& device) {
  return std::string_view(device.name).substr(0, device.name.find('-'));
}

/// "; did you mean h100-80?", of `names`.
std::string meant_by(std::string_view name, const std::vector<std::string>& names) {
  const auto meant = base::nearest(name, std::vector<std::string_view>(names.begin(), names.end()));
  return meant ? "; did you mean " + *meant + "?" : "";
}

std::vector<std::string> whole_names() {
  std::vector<std::string> names;
  for (const DeviceSpec& device : kDevices) names.push_back(device.name);
  return names;
}

}  // namespace

std::span<const DeviceSpec> known_devices() { return kDevices; }

std::vector<std::string> device_words() {
  std::vector<std::string> words;
  for (const DeviceSpec& device : kDevices) {
    if (std::ranges::count(words, stem_of(device)) == 0) words.emplace_back(stem_of(device));
  }
  std::ranges::copy(whole_names(), std::back_inserter(words));
  return words;
}

Result<std::vector<DeviceSpec>> devices_named(std::string_view name) {
  std::vector<DeviceSpec> found;
  for (const DeviceSpec& device : kDevices) {
    if (device.name == name || stem_of(device) == name) found.push_back(device);
  }
  if (!found.empty()) return found;
  return base::invalid_argument(fmt::format("no device is called \"{}\"; known are {}{}", name,
                                            fmt::join(whole_names(), ", "),
                                            meant_by(name, device_words())));
}

Result<DeviceSpec> find_device(std::string_view name) {
  for (const DeviceSpec& device : kDevices) {
    if (device.name == name) return device;
  }
  constexpr std::string_view kHost = "cpu-";
  const bool is_host = name.starts_with(kHost);
  const auto bytes = base::parse_bytes(is_host ? name.substr(kHost.size()) : name);
  if (bytes.ok() && *bytes > 0) {
    return DeviceSpec{.name = std::string(name),
                      .memory_bytes = *bytes,
                      .source = "as given",
                      .date = "",
                      .shares_host = is_host};
  }
  const auto stem = std::ranges::find(kDevices, name, stem_of);
  const std::string meant =
      stem != kDevices.end() ? "; did you mean " + stem->name + "?" : meant_by(name, whole_names());
  return base::invalid_argument(
      fmt::format("no device is called \"{}\"; known are {}, or give its memory: 24GB, or "
                  "cpu-64GB for a host{}",
                  name, fmt::join(whole_names(), ", "), meant));
}

}  // namespace hanji::plan
