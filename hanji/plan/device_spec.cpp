#include "hanji/plan/device_spec.h"

#include <array>

#include "hanji/base/units.h"

namespace hanji::plan {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;
constexpr const char* kOverview = "S. Bekman, Machine Learning Engineering, accelerators";
constexpr const char* kRead = "2026-08";

DeviceSpec row(const char* name, int64_t gigabytes) {
  return {name, gigabytes * kGigabyte, kOverview, kRead};
}

const std::array kDevices = {
    row("v100-16", 16),     row("v100-32", 32),     row("a100-40", 40),     row("a100-80", 80),
    row("h100-80", 80),     row("gh200-96", 96),    row("h200-141", 141),   row("b200-180", 180),
    row("b300-288", 288),   row("gb200-186", 186),  row("mi250x-128", 128), row("mi300x-192", 192),
    row("mi325x-256", 256), row("mi355x-288", 288), row("gaudi3-128", 128)};

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
    return DeviceSpec{std::string(name), *bytes, "as given", "", is_host};
  }
  std::string names;
  for (const DeviceSpec& device : kDevices) names += device.name + ", ";
  return base::invalid_argument("no device is called \"" + std::string(name) + "\"; known are " +
                                names + "or give its memory: 24GB, or cpu-64GB for a host");
}

}  // namespace hanji::plan
