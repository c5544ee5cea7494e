#pragma once

#include <memory>
#include <string>

#include "hanji/base/status.h"

namespace hanji::topology {

/// The few entry points of NVIDIA's management library that we call, declared here so that no
/// header of CUDA is needed. Numbers and layouts are those of nvml.h, which never change.
using NvmlDevice = void*;

// char[16] legacy id | 5 x u32 | char[32] id "00000000:3B:00.0"
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};
static_assert(sizeof(NvmlMemory) == 24);

inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlNotSupported = 3;

/// Each returns kNvmlSuccess or an error for error_string. An entry that the library lacks (an
/// older driver) is nullptr.
struct NvmlApi {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*architecture)(NvmlDevice, unsigned*) = nullptr;
  int (*nvlink_state)(NvmlDevice, unsigned, int*) = nullptr;
  int (*nvlink_version)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*nvlink_remote_pci)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  int (*nvlink_remote_type)(NvmlDevice, unsigned, int*) = nullptr;
  int (*p2p_status)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
};

/// The library, loaded at run time.
class Nvml {
 public:
  /// Errors  not_found with the loader's reason; unsupported if an entry without which nothing can
  ///         be read is missing.
  static Result<Nvml> load(const std::string& library = "libnvidia-ml.so.1");

  const NvmlApi& api() const { return api_; }

 private:
  std::shared_ptr<void> handle_;
  NvmlApi api_;
};

}  // namespace hanji::topology
