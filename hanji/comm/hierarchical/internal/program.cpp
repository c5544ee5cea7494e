#include "hanji/comm/hierarchical/internal/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/hierarchical/internal/builder.h"

namespace hanji::comm::hierarchical {

using schedule::ReduceOp;
using schedule::Routine;

layout::Range slice(int64_t count, int parts, int index) {
  const int64_t least = count / parts;
  const int64_t larger = count % parts;
  const int64_t begin = index * least + std::min<int64_t>(index, larger);
  return {begin, begin + least + (index < larger ? 1 : 0)};
}

std::vector<int64_t> slice_sizes(int64_t count, int parts) {
  std::vector<int64_t> sizes;
  for (int index = 0; index < parts; ++index) sizes.push_back(slice(count, parts, index).size());
  return sizes;
}

Builder::Builder(const Shape& shape, const HostMap& hosts, int rank)
    : shape_(shape), hosts_(hosts), rank_(rank), host_(hosts.host(rank)), rail_(hosts.rail(rank)) {}

ReduceOp Builder::op() const { return shape_.op == ReduceOp::kAvg ? ReduceOp::kSum : shape_.op; }

int64_t Builder::share(int rank) const {
  return shape_.counts.empty() ? shape_.count : shape_.counts[rank];
}

int Builder::add(Stage stage) {
  program.stages.push_back(std::move(stage));
  return static_cast<int>(program.stages.size()) - 1;
}

// Equal shares need no list, and every engine has them.
void Builder::set_counts(Stage& stage, std::vector<int64_t> counts) const {
  stage.count = sum(counts);
  if (!has_shares(stage.routine) || counts.empty()) return;
  const bool equal = std::ranges::all_of(counts, [&](int64_t c) { return c == counts[0]; });
  if (equal) {
    stage.count = counts[0];
  } else {
    stage.counts = std::move(counts);
  }
}

int Builder::local(Routine routine, Piece from, Piece to, std::vector<int64_t> counts, int after) {
  const size_t size = neighbours().size();
  if (size == 1 && from == to) return after;
  if (routine != Routine::kAllToAll && has_shares(routine)) counts.resize(size);
  Stage stage{.kind = Stage::Kind::kLocal, .routine = routine, .op = op(), .from = from, .to = to};
  set_counts(stage, std::move(counts));
  if (stage.count == 0) return after;
  if (has_root(routine)) stage.root = hosts_.rail(shape_.root);
  stage.after = after;
  return add(std::move(stage));
}

int Builder::cross(Routine routine, Piece from, Piece to, std::vector<int64_t> counts, int after) {
  if (!carries()) return after;
  Stage stage{.kind = Stage::Kind::kCross, .routine = routine, .op = op(), .from = from, .to = to};
  set_counts(stage, std::move(counts));
  if (stage.count == 0) return after;
  if (has_root(routine)) stage.root = hosts_.host(shape_.root);
  stage.after = after;
  return add(std::move(stage));
}

int Builder::everybody() {
  if (shape_.count == 0) return -1;
  return add({.kind = Stage::Kind::kAll, .routine = shape_.routine, .count = shape_.count});
}

int Builder::divide(Piece piece, int after) {
  if (shape_.op != ReduceOp::kAvg || piece.count == 0) return after;
  return add({.kind = Stage::Kind::kDivide, .to = piece, .after = after});
}

int Builder::move(std::vector<Move> moves, int after) {
  std::erase_if(moves, [](const Move& move) { return move.from.count == 0; });
  if (moves.empty()) return after;
  return add({.kind = Stage::Kind::kMove, .moves = std::move(moves), .after = after});
}

Program make_program(const Shape& shape, const HostMap& hosts, int rank) {
  Builder builder(shape, hosts, rank);
  switch (shape.routine) {
    case Routine::kBarrier: break;  // the ranks have met when they have compared their calls
    case Routine::kAllReduce:
    case Routine::kBroadcast:
    case Routine::kReduce: add_chunked(builder); break;
    case Routine::kAllGather:
    case Routine::kGather:
    case Routine::kScatter:
    case Routine::kReduceScatter: add_shares(builder); break;
    case Routine::kAllToAll: add_all_to_all(builder); break;
    case Routine::kTreeReduce: builder.everybody(); break;
    default:
      throw Error(
          base::unsupported(fmt::format("{} is no call of several hosts", name_of(shape.routine))));
  }
  return std::move(builder.program);
}

}  // namespace hanji::comm::hierarchical
