#include "hanji/topology/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "hanji/base/units.h"

namespace hanji::topology {
namespace {

constexpr unsigned kMaxNvlinks = 36;
constexpr int kReadAccess = 0, kWriteAccess = 1;  // NVML_P2P_CAPS_INDEX_*

std::string reason(const NvmlApi& api, int error) {
  if (api.error_string == nullptr) return fmt::format("NVML: error {}", error);
  return fmt::format("NVML: {}", api.error_string(error));
}

/// Calls an entry that may be missing.
/// Result  why it gave nothing; empty if it did.
template <class... Wanted, class... Given>
std::string ask(const NvmlApi& api, int (*entry)(Wanted...), Given... arguments) {
  if (entry == nullptr) return "this driver's NVML does not tell";
  const int error = entry(arguments...);
  return error == kNvmlSuccess ? "" : reason(api, error);
}

Fact fact(std::string name, const std::string& value, const std::string& why_not) {
  return {std::move(name), why_not.empty() ? value : why_not, why_not.empty()};
}

std::string text(const char* begin, size_t capacity) {
  return std::string(begin, std::find(begin, begin + capacity, '\0'));
}

NvlinkPort read_port(const NvmlApi& api, NvmlDevice device, unsigned index) {
  NvlinkPort port;
  unsigned version = 0, architecture = 0;
  ask(api, api.architecture, device, &architecture);
  if (ask(api, api.nvlink_version, device, index, &version).empty()) {
    port.generation = nvlink_generation(static_cast<int>(version), static_cast<int>(architecture));
  }
  NvmlPciInfo remote{};
  if (ask(api, api.nvlink_remote_pci, device, index, &remote).empty()) {
    port.peer_bus_id = kernel_bus_id(text(remote.bus_id, sizeof(remote.bus_id)));
  }
  int type = 0;
  if (ask(api, api.nvlink_remote_type, device, index, &type).empty()) {
    constexpr NvlinkPeer kPeers[] = {NvlinkPeer::kGpu, NvlinkPeer::kOther, NvlinkPeer::kSwitch};
    port.peer = type >= 0 && type <= 2 ? kPeers[type] : NvlinkPeer::kUnknown;
  }
  return port;
}

void read_nvlinks(const NvmlApi& api, NvmlDevice device, Gpu& gpu) {
  std::string why_not;
  for (unsigned index = 0; index < kMaxNvlinks; ++index) {
    int up = 0;
    const std::string refused = ask(api, api.nvlink_state, device, index, &up);
    if (!refused.empty() && index == 0) why_not = refused;
    if (!refused.empty()) break;
    if (up != 0) gpu.nvlinks.push_back(read_port(api, device, index));
  }
  gpu.facts.push_back(fact("NVLinks up", fmt::format("{}", gpu.nvlinks.size()), why_not));
}

Gpu read_gpu(const NvmlApi& api, NvmlDevice device, const NvmlPciInfo& pci) {
  Gpu gpu;
  gpu.bus_id = kernel_bus_id(text(pci.bus_id, sizeof(pci.bus_id)));
  char name[96] = {};
  const std::string no_name = ask(api, api.name, device, name, unsigned{sizeof(name)});
  gpu.facts.push_back(fact("name", text(name, sizeof(name)), no_name));
  NvmlMemory memory{};
  const std::string no_memory = ask(api, api.memory, device, &memory);
  gpu.facts.push_back(
      fact("memory", base::format_bytes(static_cast<int64_t>(memory.total)), no_memory));
  read_nvlinks(api, device, gpu);
  return gpu;
}

PeerAccess judge_pair(const NvmlApi& api, NvmlDevice first, NvmlDevice second) {
  static constexpr const char* kReasons[] = {"",
                                             "the chipset does not support it",
                                             "a GPU does not support it",
                                             "the I/O hubs between them do not support it",
                                             "a driver's registry key disables it",
                                             "the driver does not support it for this pair"};
  PeerAccess access;
  for (const int kind : {kReadAccess, kWriteAccess}) {
    int status = 0;
    access.reason = ask(api, api.p2p_status, first, second, kind, &status);
    if (!access.reason.empty()) return access;
    if (status < 0 || status > 5) {
      access.reason = "NVML says that it does not know";
      return access;
    }
    access.verdict = status == 0 ? Verdict::kPossible : Verdict::kImpossible;
    access.reason = kReasons[status];
    if (status != 0) return access;
  }
  return access;
}

GpuReport read_devices(const NvmlApi& api) {
  GpuReport report;
  char driver[80] = {};
  ask(api, api.driver_version, driver, unsigned{sizeof(driver)});
  report.driver = text(driver, sizeof(driver));
  unsigned count = 0;
  report.unknown = ask(api, api.count, &count);
  std::vector<NvmlDevice> devices;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    NvmlPciInfo pci{};
    std::string refused = ask(api, api.device, index, &device);
    if (refused.empty()) refused = ask(api, api.pci_info, device, &pci);
    if (!refused.empty()) {
      report.unknown = fmt::format("GPU {} of {}: {}", index, count, refused);
      continue;
    }
    devices.push_back(device);
    report.gpus.push_back(read_gpu(api, device, pci));
  }
  for (size_t first = 0; first < devices.size(); ++first) {
    for (size_t second = first + 1; second < devices.size(); ++second) {
      report.peers.push_back(judge_pair(api, devices[first], devices[second]));
      report.peers.back().first = static_cast<int>(first);
      report.peers.back().second = static_cast<int>(second);
    }
  }
  return report;
}

}  // namespace

GpuReport read_gpus(const NvmlApi& api) {
  const std::string refused = ask(api, api.init);
  if (!refused.empty()) {
    GpuReport report;
    report.unknown = refused;
    return report;
  }
  GpuReport report = read_devices(api);
  ask(api, api.shutdown);
  return report;
}

GpuReport read_gpus(const std::string& library) {
  const auto nvml = Nvml::load(library);
  if (nvml.ok()) return read_gpus(nvml->api());
  GpuReport report;
  report.unknown = nvml.status().message();
  return report;
}

int nvlink_generation(int version_code, int architecture_code) {
  // NVML_NVLINK_VERSION_* 1_0, 2_0, 2_2, 3_0, 3_1, 4_0, 5_0 are 1 to 7.
  static constexpr int kOfVersion[] = {0, 1, 2, 2, 3, 3, 4, 5};
  // NVML_DEVICE_ARCH_* Pascal 4, Volta 5, Turing 6, Ampere 7, Ada 8, Hopper 9, Blackwell 10.
  static constexpr int kOfArchitecture[] = {5, 5, 5, 5, 1, 2, 2, 3, 5, 4, 5};
  const int named = version_code >= 1 && version_code <= 7 ? kOfVersion[version_code] : 0;
  const bool is_known = architecture_code >= 0 && architecture_code <= 10;
  return std::min(named, is_known ? kOfArchitecture[architecture_code] : 5);
}

std::string kernel_bus_id(const std::string& nvml_bus_id) {
  std::string id = nvml_bus_id;
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t domain = id.find(':');
  if (domain == 8 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

}  // namespace hanji::topology
