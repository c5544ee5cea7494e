#include "hanji/comm/nccl/switch_sums.h"

#include <fmt/format.h>

namespace hanji::comm::nccl {
namespace {

using Is = SwitchSums::Is;

std::string_view word(Is is) { return is == Is::kOn ? "on" : is == Is::kOff ? "off" : "?"; }

}  // namespace

SwitchSums read_switch_sums(std::string_view log) {
  const auto says = [&](std::string_view words) { return log.find(words) != log.npos; };
  SwitchSums sums;
  // A finished communicator that told of neither has neither.
  if (says("Init COMPLETE")) sums = {Is::kOff, Is::kOff};
  if (says("NVLS multicast support is not available")) sums.nvls = Is::kOff;
  if (says("NVLS multicast support is available") || says("Connected NVLS")) sums.nvls = Is::kOn;
  if (says("Connected CollNet") || says("Connected collnet")) sums.sharp = Is::kOn;
  return sums;
}

std::string describe(const SwitchSums& sums) {
  return fmt::format("NVLS {}, SHARP {}", word(sums.nvls), word(sums.sharp));
}

}  // namespace hanji::comm::nccl
