#include "hanji/train/strategy.h"

namespace hanji::train {
namespace {

void add(std::optional<comm::CallTimes>& sum, const std::optional<comm::CallTimes>& more) {
  if (!sum || !more) return sum.reset();
  sum->transfer_ns += more->transfer_ns;
  sum->exposed_ns += more->exposed_ns;
  sum->skew_ns += more->skew_ns;
}

}  // namespace

bool is_counted(const layout::Cut& cut, std::string_view parameter) {
  return cut.index == 0 || layout::placement_of(cut.placements, parameter).or_throw().is_cut();
}

void add(comm::Stats& sum, const comm::Stats& more) {
  sum.operations += more.operations;
  sum.bytes += more.bytes;
  sum.wire_bytes += more.wire_bytes;
  sum.network_bytes += more.network_bytes;
  sum.wait_ns += more.wait_ns;
  sum.busy_ns += more.busy_ns;
  add(sum.times, more.times);
}

}  // namespace hanji::train
