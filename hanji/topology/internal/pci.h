#pragma once

namespace hanji::topology {

inline constexpr int kNvidia = 0x10de;  ///< As the vendor of a PCI device.

}  // namespace hanji::topology
