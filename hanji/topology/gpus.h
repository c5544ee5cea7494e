#pragma once

#include <string>
#include <vector>

#include "hanji/topology/graph.h"
#include "hanji/topology/nvml.h"

namespace hanji::topology {

enum class NvlinkPeer { kGpu, kSwitch, kOther, kUnknown };

/// An NVLink that is up.
struct NvlinkPort {
  int generation = 0;  ///< 0: not known.
  NvlinkPeer peer = NvlinkPeer::kUnknown;
  std::string peer_bus_id;  ///< Empty: not known.
  bool operator==(const NvlinkPort&) const = default;
};

struct Gpu {
  std::string bus_id;  ///< As the kernel writes it: "0000:3b:00.0".
  std::vector<Fact> facts;
  std::vector<NvlinkPort> nvlinks;
};

/// Whether two GPUs (indices into GpuReport::gpus) may read and write each other's memory.
struct PeerAccess {
  int first = 0, second = 0;
  Verdict verdict = Verdict::kUnknown;
  std::string reason;
};

struct GpuReport {
  std::vector<Gpu> gpus;
  std::vector<PeerAccess> peers;  ///< Every pair once.
  std::string driver;
  std::string unknown;  ///< Why nothing could be read; empty if it could.
};

/// Reads every GPU that NVML shows. What one of its calls refuses is unknown with NVML's reason.
GpuReport read_gpus(const NvmlApi& api);
/// The same by the library of that name, if there is one.
GpuReport read_gpus(const std::string& library);

/// Adds what NVML knows to the GPUs of the graph: facts, NVLinks between GPUs and to switches. A
/// GPU or a switch that hwloc does not show is added below the machine.
void add_gpus(Graph& graph, const GpuReport& report);

/// NVLink's generation from NVML's code for its version and for the GPU's architecture.
/// nvmlDeviceGetNvLinkVersion may name one above the architecture's (5 on Hopper); that one counts.
///
/// Result  1 to 5; 0 if the code names none.
int nvlink_generation(int version_code, int architecture_code);

/// "00000000:3B:00.0" as the kernel writes it: "0000:3b:00.0".
std::string kernel_bus_id(const std::string& nvml_bus_id);

}  // namespace hanji::topology
