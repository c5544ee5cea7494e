#include "hanji/plan/device_spec.h"

#include <array>

#include "hanji/base/units.h"

namespace hanji::plan {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;
constexpr const char* kOverview = "S. Bekman, Machine Learning Engineering, accelerators";
constexpr const char* kRead = "2026-08";

/// `teraflops`: the fastest product measured; of v100 and mi250x, of which none is known, 0.8 of the peak.
DeviceSpec row(const char* name, int64_t gigabytes, double teraflops, double memory_terabytes,
               double link_gigabytes) {
  return {.name = name,
          .memory_bytes = gigabytes * kGigabyte,
          .source = kOverview,
          .date = kRead,
          .flops = teraflops * 1e12,
          .memory_rate = memory_terabytes * 1e12,
          .link_rate = link_gigabytes * 1e9};
}

const std::array kDevices = {
    row("v100-16", 16, 100, 0.9, 150),      row("v100-32", 32, 100, 0.9, 150),
    row("a100-40", 40, 271.2, 1.555, 300),  row("a100-80", 80, 271.2, 2.0, 300),
    row("h100-80", 80, 794.5, 3.35, 450),   row("gh200-96", 96, 828.6, 4.0, 450),
    row("h200-141", 141, 794.5, 4.8, 450),  row("b200-180", 180, 1745, 8, 900),
    row("b300-288", 288, 1769, 8, 900),     row("gb200-186", 186, 1822, 8, 900),
    row("mi250x-128", 128, 306, 3.28, 350), row("mi300x-192", 192, 668.4, 5.3, 448),
    row("mi325x-256", 256, 784.9, 6, 448),  row("mi355x-288", 288, 1565, 8, 535.5),
    row("gaudi3-128", 128, 1243, 3.7, 600)};

}  // namespace

std::span<const DeviceSpec> known_devices() { return kDevices; }

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
  std::string names;
  for (const DeviceSpec& device : kDevices) names += device.name + ", ";
  return base::invalid_argument("no device is called \"" + std::string(name) + "\"; known are " +
                                names + "or give its memory: 24GB, or cpu-64GB for a host");
}

}  // namespace hanji::plan
