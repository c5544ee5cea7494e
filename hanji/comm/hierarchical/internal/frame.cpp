#include "hanji/comm/hierarchical/internal/frame.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace hanji::comm::hierarchical {

Frame make_frame(const Request& request, std::string_view way, uint64_t sequence, int rank) {
  Frame frame;
  frame.call = describe(request, way, sequence);
  frame.rank = rank;
  return frame;
}

void set_verdict(Frame& frame, const Status& status) {
  frame.code = static_cast<int32_t>(status.code());
  frame.verdict = {};
  const std::string& text = status.message();
  std::copy_n(text.begin(), std::min(text.size(), frame.verdict.size() - 1), frame.verdict.begin());
}

Status judge(std::span<const Frame> frames, const RankNames& names) {
  for (const Frame& frame : frames) {
    if (frame.code == 0) continue;
    const size_t length = strnlen(frame.verdict.data(), frame.verdict.size());
    return {static_cast<Code>(frame.code), std::string(frame.verdict.data(), length)};
  }
  std::vector<Description> calls;
  std::vector<std::string> callers;
  for (const Frame& frame : frames) {
    calls.push_back(frame.call);
    calls.back().way.back() = calls.back().where.back() = 0;
    callers.push_back(names.of(frame.rank));
  }
  return compare(calls, RankNames(std::move(callers)));
}

}  // namespace hanji::comm::hierarchical
