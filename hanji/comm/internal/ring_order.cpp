#include "hanji/comm/internal/ring_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/topology/place.h"

namespace hanji::comm {
namespace {

/// What a rank says of itself: a line of topology::place_of_caller(), ended by zeros.
using Line = std::array<char, 192>;

Line line_of_caller() {
  const std::string text = topology::to_line(topology::place_of_caller());
  Line line{};
  std::memcpy(line.data(), text.data(), std::min(text.size(), line.size() - 1));
  return line;
}

/// What is under way may be written to after a failure, so both live together.
struct Exchange {
  Line mine = line_of_caller();
  std::vector<Line> all;
  std::unique_ptr<Pending> pending;
};

void wait(Wire& wire, std::unique_ptr<Exchange>& exchange, std::chrono::nanoseconds deadline) {
  const auto until = base::Deadline::after(deadline);
  while (!exchange->pending->done()) {
    if (until.passed()) {
      const std::string who = fmt::format("{}", fmt::join(wire.absent(), ", "));
      if (!wire.abandon()) (void)exchange.release();
      throw Error(base::timeout(fmt::format(
          "a group over {} of {} ranks was not made in time; ranks that did not come: {}",
          wire.name(), wire.size(), who.empty() ? "unknown" : who)));
    }
    std::this_thread::yield();
  }
}

}  // namespace

std::vector<int> ring_order(Wire& wire, std::chrono::nanoseconds deadline) {
  if (wire.size() <= 2) return {};
  auto exchange = std::make_unique<Exchange>();
  exchange->all.resize(static_cast<size_t>(wire.size()));
  exchange->pending = wire.gather(std::as_bytes(std::span(exchange->mine)),
                                  std::as_writable_bytes(std::span(exchange->all)));
  wait(wire, exchange, deadline);
  std::vector<topology::RankPath> paths;
  for (const Line& line : exchange->all) {
    paths.push_back(topology::path_from_line({line.data(), ::strnlen(line.data(), line.size())}));
  }
  return topology::order_ranks(paths).ranks;
}

}  // namespace hanji::comm
