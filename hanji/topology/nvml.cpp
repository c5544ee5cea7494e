#include "hanji/topology/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace hanji::topology {
namespace {

template <class Function>
void find(void* handle, const char* name, Function*& entry) {
  entry = reinterpret_cast<Function*>(::dlsym(handle, name));
}

NvmlApi find_all(void* handle) {
  NvmlApi api;
  find(handle, "nvmlInit_v2", api.init);
  find(handle, "nvmlShutdown", api.shutdown);
  find(handle, "nvmlErrorString", api.error_string);
  find(handle, "nvmlSystemGetDriverVersion", api.driver_version);
  find(handle, "nvmlDeviceGetCount_v2", api.count);
  find(handle, "nvmlDeviceGetHandleByIndex_v2", api.device);
  find(handle, "nvmlDeviceGetName", api.name);
  find(handle, "nvmlDeviceGetPciInfo_v3", api.pci_info);
  find(handle, "nvmlDeviceGetMemoryInfo", api.memory);
  find(handle, "nvmlDeviceGetArchitecture", api.architecture);
  find(handle, "nvmlDeviceGetNvLinkState", api.nvlink_state);
  find(handle, "nvmlDeviceGetNvLinkVersion", api.nvlink_version);
  find(handle, "nvmlDeviceGetNvLinkRemotePciInfo_v2", api.nvlink_remote_pci);
  find(handle, "nvmlDeviceGetNvLinkRemoteDeviceType", api.nvlink_remote_type);
  find(handle, "nvmlDeviceGetP2PStatus", api.p2p_status);
  return api;
}

}  // namespace

Result<Nvml> Nvml::load(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return base::not_found(
        fmt::format("NVML: {}; install NVIDIA's driver if this host has its GPUs",
                    reason == nullptr ? library : reason));
  }
  Nvml nvml;
  nvml.handle_ = std::shared_ptr<void>(handle, [](void* open) { ::dlclose(open); });
  nvml.api_ = find_all(handle);
  const NvmlApi& api = nvml.api_;
  for (const bool there : {api.init != nullptr, api.shutdown != nullptr, api.count != nullptr,
                           api.device != nullptr, api.pci_info != nullptr}) {
    if (there) continue;
    return base::unsupported(fmt::format(
        "NVML: {} is too old: it cannot list devices by PCI address; update NVIDIA's driver",
        library));
  }
  return nvml;
}

}  // namespace hanji::topology
