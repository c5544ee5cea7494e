#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::plan {

/// A device whose memory is compared with that of a model; it need not be present.
struct DeviceSpec {
  std::string name;          ///< e.g. "h100-80".
  int64_t memory_bytes = 0;  ///< The manufacturer's figure in units of 10^9, a few per cent below
                             ///< that of the driver, which reserves about so much.
  std::string source;        ///< Of the figure.
  std::string date;          ///< Of the source, as YYYY-MM.
  bool shares_host = false;  ///< Processes of one host share its memory: a CPU.
  double flops = 0;          ///< A second, of the fastest bf16 product published; 0: not known,
  double memory_rate = 0;    ///< bytes a second of its memory,
  double link_rate = 0;      ///< and to the other devices of its host, one way.
};

std::span<const DeviceSpec> known_devices();

/// A known device by name, or any by its memory: "24GB", "16GiB"; "cpu-64GB" is a host whose ranks
/// share that memory.
/// Errors  invalid_argument lists the names.
Result<DeviceSpec> find_device(std::string_view name);

}  // namespace hanji::plan
