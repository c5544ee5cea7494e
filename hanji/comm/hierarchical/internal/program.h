#pragma once

#include <cstdint>
#include <vector>

#include "hanji/comm/hierarchical/host_map.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm::hierarchical {

/// Where elements lie: the caller's tensors, or staging of the call in the heap.
enum class Buffer : uint8_t { kNone, kInput, kOutput, kWide, kRail, kPiece };
inline constexpr int kNumBuffers = 6;

/// A range of elements of a buffer.
struct Piece {
  Buffer buffer = Buffer::kNone;
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const Piece&) const = default;
};

struct Move {
  Piece from;
  Piece to;  ///< As many elements.
};

/// One thing that a rank does in a call.
struct Stage {
  enum class Kind : uint8_t {
    kLocal,   ///< A collective of the ranks of this host.
    kCross,   ///< A collective of this rank and its rail peers on the other hosts.
    kAll,     ///< The call itself, of all ranks by the engine between hosts.
    kMove,    ///< Copies within this rank.
    kDivide,  ///< `to` by the number of all ranks.
  } kind = Kind::kMove;
  schedule::Routine routine = schedule::Routine::kBarrier;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  Piece from{};
  Piece to{};
  int64_t count = 0;              ///< As Request::count.
  std::vector<int64_t> counts{};  ///< As Request::counts.
  int root = 0;                   ///< A rail (kLocal) or a host (kCross).
  std::vector<Move> moves{};
  /// The stage that must have ended, by number; -1: none. Stages begin in the order of the list.
  int after = -1;
};

/// What one rank does in one call, and the elements of each staging buffer.
struct Program {
  std::vector<Stage> stages;
  int64_t wide = 0;
  int64_t rail = 0;
  int64_t piece = 0;
};

/// What decides a program beside the hosts: the same on every rank, but for in_place.
struct Shape {
  schedule::Routine routine = schedule::Routine::kBarrier;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  int64_t count = 0;
  int root = 0;
  std::vector<int64_t> counts{};
  int64_t element_bytes = 1;
  bool in_place = true;  ///< Input and output are one; each rank for itself.

  bool operator==(const Shape&) const = default;
};

/// Bytes of the whole tensor that go through the stages at once, so that the wire is busy while
/// memory moves.
inline constexpr int64_t kChunkBytes = int64_t{4} << 20;

/// What `rank` does. Every element travels between hosts once in each direction that its routine
/// needs, on the rail that owns it.
///
/// Order   the sum of an element is that of its host's ranks by pairwise_tree, then that of the
///         hosts by the engine between them: for equal hosts of 2^k ranks pairwise_tree of all.
/// Cost    all_reduce of N bytes: 2N(h-1)/h sent per host, in chunks; so broadcast and reduce. The
///         others go in one piece, and their blocks are put in order by a copy.
///         A tree over grains goes by messages between all ranks: schedule::tree_exchange().
/// Errors  throws Error(kUnsupported) for a routine without a program: send.
Program make_program(const Shape& shape, const HostMap& hosts, int rank);

}  // namespace hanji::comm::hierarchical
