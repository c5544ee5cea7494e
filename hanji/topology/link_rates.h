#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hanji::topology {

/// What a link carries one way, as the kernel says; or why that is not known.
struct LinkRate {
  std::string label{};          ///< "PCIe 5 x16", "25 Gbit/s", "100 Gb/sec (4X EDR)".
  double bytes_per_second = 0;  ///< 0: not known.
  std::string unknown{};
};

/// ROOT/sys/bus/pci/devices/BUS_ID/{current,max}_link_{speed,width}. Where the link runs below its
/// best now (a GPU at rest does), the label says both, and the rate is that of the best.
LinkRate read_pcie_rate(const std::filesystem::path& root, std::string_view bus_id);

/// ROOT/sys/class/net/NAME/{speed,operstate}.
LinkRate read_net_rate(const std::filesystem::path& root, std::string_view name);

/// ROOT/sys/class/infiniband/NAME/ports/PORT/rate, with its data rate after coding.
LinkRate read_infiniband_rate(const std::filesystem::path& root, std::string_view name,
                              std::string_view port);

/// Names in ROOT/sys/class/CLASS, sorted; none if it is not there.
std::vector<std::string> names_in_class(const std::filesystem::path& root, std::string_view name);

/// First line of a small file of the kernel, without blanks at its ends; empty if unreadable.
std::string read_line(const std::filesystem::path& path);

}  // namespace hanji::topology
