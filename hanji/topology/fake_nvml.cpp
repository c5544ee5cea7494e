// What libnvidia-ml.so.1 would say on a host with two H100 (01:00.0 and 81:00.0): two NVLinks
// between them, four from each to a switch (c1:00.0), one down. GPU 1 does not tell its memory.
#include <cstdio>
#include <cstring>

#include "hanji/topology/nvml.h"

using hanji::topology::NvmlDevice;
using hanji::topology::NvmlMemory;
using hanji::topology::NvmlPciInfo;

namespace {

int devices[2] = {0, 1};
constexpr int kInvalidArgument = 2;

int index_of(NvmlDevice device) { return *static_cast<int*>(device); }

void set_bus(NvmlPciInfo* pci, const char* bus) {
  std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%s:00.0", bus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) { return error == 3 ? "Not Supported" : "Invalid Argument"; }

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "580.1");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  *device = &devices[index];
  return index < 2 ? 0 : kInvalidArgument;
}
int nvmlDeviceGetName(NvmlDevice, char* name, unsigned length) {
  std::snprintf(name, length, "NVIDIA H100 <fake>");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* pci) {
  set_bus(pci, index_of(device) == 0 ? "01" : "81");
  return 0;
}
int nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  memory->total = 80ULL << 30;
  return index_of(device) == 0 ? 0 : 3;
}
int nvmlDeviceGetArchitecture(NvmlDevice, unsigned* architecture) {
  *architecture = 9;
  return 0;
}
int nvmlDeviceGetNvLinkState(NvmlDevice, unsigned link, int* up) {
  *up = link == 6 ? 0 : 1;
  return link < 7 ? 0 : kInvalidArgument;
}
int nvmlDeviceGetNvLinkVersion(NvmlDevice, unsigned, unsigned* version) {
  *version = 7;  // as some drivers say on Hopper
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(NvmlDevice device, unsigned link, NvmlPciInfo* pci) {
  set_bus(pci, link >= 2 ? "C1" : index_of(device) == 0 ? "81" : "01");
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(NvmlDevice, unsigned link, int* type) {
  *type = link >= 2 ? 2 : 0;
  return 0;
}
int nvmlDeviceGetP2PStatus(NvmlDevice, NvmlDevice, int, int* status) {
  *status = 0;
  return 0;
}

}  // extern "C"
