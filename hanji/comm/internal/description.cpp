#include "hanji/comm/internal/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

namespace hanji::comm {
namespace {

auto compared(const Description& one) {
  return std::tie(one.sequence, one.routine, one.op, one.dtype, one.count, one.root, one.tag,
                  one.by_steps);
}

std::string say(const Description& one) {
  const auto routine = static_cast<schedule::Routine>(one.routine);
  return fmt::format("{}(count {}, {}, {}, root {}, tag {}{}) as call {} at {}",
                     schedule::name_of(routine), one.count,
                     base::name_of(static_cast<DType>(one.dtype)),
                     schedule::name_of(static_cast<schedule::ReduceOp>(one.op)), one.root, one.tag,
                     one.by_steps ? ", ordered" : "", one.sequence, one.where.data());
}

}  // namespace

Description describe(const Request& request, const Choice& choice, uint64_t sequence) {
  Description one;
  one.sequence = sequence;
  one.tag = request.tag;
  one.count = request.count;
  one.root = request.root;
  one.routine = static_cast<uint8_t>(request.routine);
  one.op = static_cast<uint8_t>(request.op);
  one.dtype = static_cast<uint8_t>(request.dtype);
  one.by_steps = choice.steps != nullptr;
  const std::filesystem::path file = request.call_site.file_name();
  const std::string label = request.label.empty() ? "" : fmt::format(" ({})", request.label);
  const std::string where =
      fmt::format("{}:{}{}", file.filename().string(), request.call_site.line(), label);
  std::copy_n(where.begin(), std::min(where.size(), one.where.size() - 1), one.where.begin());
  return one;
}

Status compare(std::span<const Description> ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (compared(ranks[rank]) == compared(ranks[0])) continue;
    return base::mismatch(
        fmt::format("rank {} called {}, but rank 0 called {}; every rank must issue the group's "
                    "collectives in one order with equal arguments",
                    rank, say(ranks[rank]), say(ranks[0])));
  }
  return {};
}

}  // namespace hanji::comm
