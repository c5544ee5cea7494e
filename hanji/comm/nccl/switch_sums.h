#pragma once

#include <string>
#include <string_view>

namespace hanji::comm::nccl {

/// Whether NCCL sums in the switches between GPUs and between hosts.
struct SwitchSums {
  enum class Is : unsigned char { kUnknown, kOff, kOn };
  Is nvls = Is::kUnknown;   ///< In NVSwitch.
  Is sharp = Is::kUnknown;  ///< In InfiniBand switches, which NCCL calls CollNet.
};

/// What NCCL's log tells at NCCL_DEBUG = INFO, once a communicator has been made.
SwitchSums read_switch_sums(std::string_view log);

/// "NVLS on, SHARP off"; "?" where the log does not tell.
std::string describe(const SwitchSums& sums);

}  // namespace hanji::comm::nccl
