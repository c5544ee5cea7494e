#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::plan {

/// Products of one dtype, in floating-point operations a second. 0: no figure is known.
struct DeviceRate {
  std::string dtype;          ///< "bf16", "fp8", "tf32", "fp32"; of V100 "fp16".
  double peak_flops = 0;      ///< Peak of dense matrices, as the manufacturer says.
  double measured_flops = 0;  ///< The fastest product that the source measured.
};

/// The ways out of a device. Rates are those of topology/nominal.h where it has them.
struct DeviceLinks {
  std::string peers;     ///< To the devices of its host: "NVLink 4", "xGMI"; empty: not known.
  int nvlink = 0;        ///< Its generation; 0: the link is another.
  std::string host;      ///< To the processors: "PCIe 5 x16", "NVLink-C2C".
  double host_rate = 0;  ///< Bytes a second, one way; 0: not known.
  std::string
      network;  ///< Network of the named host, for each device: "InfiniBand NDR 4x (DGX H100)".
  double network_rate = 0;  ///< Bytes a second, one way; 0: not known.
};

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
  std::vector<DeviceRate> rates = {};  ///< Rates of the dtypes that are known, the fastest first.
  DeviceLinks links = {};
};

std::span<const DeviceSpec> known_devices();

/// The known devices that a name means: "h100-80", or without its memory "a100", which has two.
/// Errors  invalid_argument with the names, and the nearest one.
Result<std::vector<DeviceSpec>> devices_named(std::string_view name);
/// What devices_named() takes: each name without its memory, then each whole name.
std::vector<std::string> device_words();

/// A known device by name, or any by its memory: "24GB", "16GiB"; "cpu-64GB" is a host whose ranks
/// share that memory.
/// Errors  invalid_argument lists the names, and the nearest one.
Result<DeviceSpec> find_device(std::string_view name);

}  // namespace hanji::plan
