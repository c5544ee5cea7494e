#include "hanji/comm/internal/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "hanji/base/checksum.h"
#include "hanji/shm/tag.h"

namespace hanji::comm {
namespace {

auto compared(const Description& one) {
  return std::tie(one.sequence, one.routine, one.op, one.dtype, one.count, one.shares, one.root,
                  one.tag, one.way);
}

uint64_t hash_of_shares(const Request& request) {
  if (request.steps) return base::xxh3(std::as_bytes(std::span(request.steps->owners))) | 1;
  if (request.counts.empty()) return 0;
  return base::xxh3(std::as_bytes(std::span(request.counts))) | 1;
}

std::string_view name_of_call(schedule::Routine routine, size_t place) {
  if (routine == schedule::Routine::kSend && place == 1) return "recv";
  return schedule::name_of(routine);
}

void put_terminated(std::string_view text, std::span<char> zero_terminated) {
  std::copy_n(text.begin(), std::min(text.size(), zero_terminated.size() - 1),
              zero_terminated.begin());
}

std::string say(const Description& one, size_t place) {
  const auto routine = static_cast<schedule::Routine>(one.routine);
  return fmt::format(
      "{}(count {}{}, {}, {}, root {}, tag {}{}) as call {} at {}", name_of_call(routine, place),
      one.count, one.shares != 0 ? fmt::format(", shares {:04x}", one.shares & 0xffff) : "",
      base::name_of(static_cast<DType>(one.dtype)),
      schedule::name_of(static_cast<schedule::ReduceOp>(one.op)), one.root, shm::say_tag(one.tag),
      one.way[0] != 0 ? fmt::format(", by {}", one.way.data()) : "", one.sequence,
      one.where.data());
}

}  // namespace

std::string say_way(const Choice& choice) {
  if (!choice.steps) return "";
  const schedule::StepList& list = *choice.steps;
  const std::string name = list.algorithm.empty() ? "messages" : list.algorithm;
  return list.parameter == 0 ? name : fmt::format("{} {}", name, list.parameter);
}

Description describe(const Request& request, std::string_view way, uint64_t sequence) {
  Description one;
  one.sequence = sequence;
  one.tag = request.tag;
  one.count = request.count;
  one.shares = hash_of_shares(request);
  one.root = request.root;
  one.routine = static_cast<uint8_t>(request.routine);
  one.op = static_cast<uint8_t>(request.op);
  one.dtype = static_cast<uint8_t>(request.dtype);
  put_terminated(way, one.way);
  const std::filesystem::path file = request.call_site.file_name();
  const std::string label = request.label.empty() ? "" : fmt::format(" ({})", request.label);
  const std::string where =
      fmt::format("{}:{}{}", file.filename().string(), request.call_site.line(), label);
  put_terminated(where, one.where);
  return one;
}

Status compare(std::span<const Description> ranks, const RankNames& names) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (compared(ranks[rank]) == compared(ranks[0])) continue;
    return base::mismatch(fmt::format(
        "rank {} called {}, but rank {} called {}; every rank must issue the group's "
        "collectives in one order with equal arguments",
        names.of(static_cast<int>(rank)), say(ranks[rank], rank), names.of(0), say(ranks[0], 0)));
  }
  return {};
}

}  // namespace hanji::comm
