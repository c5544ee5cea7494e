#include "hanji/topology/link_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "hanji/base/file.h"
#include "hanji/topology/nominal.h"

namespace hanji::topology {
namespace {

namespace fs = std::filesystem;

struct PcieState {
  int generation = 0;
  int lanes = 0;
  bool known() const { return generation > 0 && lanes > 0; }
  std::string label() const { return fmt::format("PCIe {} x{}", generation, lanes); }
};

PcieState read_pcie_state(const fs::path& device, std::string_view which) {
  // "16.0 GT/s PCIe", older kernels "8 GT/s"; "Unknown" and a width of 0, 63 or 255 say nothing.
  const std::string speed = read_line(device / fmt::format("{}_link_speed", which));
  const int lanes = std::atoi(read_line(device / fmt::format("{}_link_width", which)).c_str());
  PcieState state;
  if (speed.find("GT/s") != std::string::npos)
    state.generation = pcie_generation(std::atof(speed.c_str()));
  if (lanes >= 1 && lanes <= 32) state.lanes = lanes;
  return state;
}

}  // namespace

std::string read_line(const fs::path& path) {
  const auto text = base::read_file(path, 1 << 16);
  if (!text.ok()) return "";
  const std::string_view line(text->data(), std::min(text->find('\n'), text->size()));
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(line.substr(begin, line.find_last_not_of(" \t") + 1 - begin));
}

std::vector<std::string> names_in_class(const fs::path& root, std::string_view name) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/class" / name, error)) {
    if (entry.is_directory(error)) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

LinkRate read_pcie_rate(const fs::path& root, std::string_view bus_id) {
  const fs::path device = root / "sys/bus/pci/devices" / bus_id;
  const PcieState now = read_pcie_state(device, "current");
  const PcieState best = read_pcie_state(device, "max");
  if (!now.known() && !best.known()) {
    return {.label = "PCI", .unknown = "the kernel names no link speed and width"};
  }
  const PcieState& counts = best.known() ? best : now;
  LinkRate rate{.label = counts.label(),
                .bytes_per_second = pcie_bytes_per_second(counts.generation, counts.lanes)};
  if (now.known() && now.label() != counts.label())
    rate.label += fmt::format(" (now {})", now.label());
  return rate;
}

LinkRate read_net_rate(const fs::path& root, std::string_view name) {
  const fs::path folder = root / "sys/class/net" / name;
  const int64_t megabits = std::atoll(read_line(folder / "speed").c_str());
  if (megabits > 0) {
    return {.label = fmt::format("{:g} Gbit/s", static_cast<double>(megabits) * 1e-3),
            .bytes_per_second = static_cast<double>(megabits) * 1e6 / 8};
  }
  const std::string state = read_line(folder / "operstate");
  if (state == "down") return {.label = "network", .unknown = "the link is down"};
  return {.label = "network", .unknown = "the driver gives no speed"};
}

LinkRate read_infiniband_rate(const fs::path& root, std::string_view name, std::string_view port) {
  const std::string line =
      read_line(root / "sys/class/infiniband" / name / "ports" / port / "rate");
  const double gigabits = std::atof(line.c_str());
  if (gigabits <= 0) return {.label = "InfiniBand", .unknown = "the kernel names no rate"};
  // The kernel gives the signalled rate up to FDR, and the data rate from EDR on.
  double data = 1;
  for (const std::string_view old : {"SDR", "DDR", "QDR"}) {
    if (line.find(fmt::format("X {}", old)) != std::string::npos) data = 0.8;
  }
  if (line.find("X FDR)") != std::string::npos) data = 64.0 / 66;
  return {.label = line, .bytes_per_second = gigabits * 1e9 / 8 * data};
}

}  // namespace hanji::topology
