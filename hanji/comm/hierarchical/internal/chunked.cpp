#include <algorithm>

#include "hanji/comm/hierarchical/internal/builder.h"

namespace hanji::comm::hierarchical {
namespace {

using schedule::Routine;

constexpr int kAhead = 2;  // chunks that travel between hosts while memory moves

/// One chunk of the tensor, and this rank's slice of it.
struct Chunk {
  Piece whole;
  Piece mine;
  std::vector<int64_t> slices;  // by rail
};

std::vector<Chunk> chunks_of(const Builder& b, Buffer buffer) {
  const int rails = b.num_rails();
  const int64_t unit = int64_t{64} * rails;
  const int64_t most = std::max(kChunkBytes / b.shape().element_bytes / unit * unit, unit);
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < b.shape().count; begin += most) {
    const int64_t count = std::min(most, b.shape().count - begin);
    Chunk chunk{{buffer, begin, count}, {buffer, begin, 0}, slice_sizes(count, rails)};
    if (b.carries()) {
      const layout::Range mine = slice(count, rails, b.rail());
      chunk.mine = {buffer, begin + mine.begin, mine.size()};
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

/// The part before the wire and on it; the stage to wait for.
int go_out(Builder& b, const Chunk& chunk) {
  const int64_t count = chunk.mine.count;
  if (b.shape().routine == Routine::kBroadcast) {
    int after = -1;
    if (b.at_root_host() && b.neighbours().size() > 1) {
      after = b.local(Routine::kBroadcast, chunk.whole, chunk.whole, {chunk.whole.count}, -1);
    }
    return b.cross(Routine::kBroadcast, chunk.mine, chunk.mine, {count}, after);
  }
  const Piece given{b.shape().in_place ? chunk.whole.buffer : Buffer::kInput, chunk.whole.begin,
                    chunk.whole.count};
  const int summed = b.local(Routine::kReduceScatter, given, chunk.mine, chunk.slices, -1);
  return b.divide(chunk.mine,
                  b.cross(Routine::kAllReduce, chunk.mine, chunk.mine, {count}, summed));
}

void come_in(Builder& b, const Chunk& chunk, int after) {
  if (b.shape().routine == Routine::kBroadcast && b.at_root_host()) return;
  b.local(Routine::kAllGather, chunk.mine, chunk.whole, chunk.slices, after);
}

/// Slices are summed into staging, for the inputs stay as they are.
struct ReducedChunk {
  Chunk chunk;
  Piece staged;
};

std::vector<ReducedChunk> reduced_chunks(Builder& b) {
  std::vector<ReducedChunk> chunks;
  for (Chunk& chunk : chunks_of(b, Buffer::kInput)) {
    const Piece staged{Buffer::kPiece, b.program.piece, chunk.mine.count};
    b.program.piece += chunk.mine.count;
    chunks.push_back({std::move(chunk), staged});
  }
  return chunks;
}

void reduce_in(Builder& b, const ReducedChunk& one, int after) {
  if (!b.at_root_host()) return;
  const bool is_root = b.rank() == b.shape().root;
  const Piece to =
      is_root ? Piece{Buffer::kOutput, one.chunk.whole.begin, one.chunk.whole.count} : Piece{};
  b.local(Routine::kGather, one.staged, to, one.chunk.slices, b.divide(one.staged, after));
}

void add_reduce(Builder& b) {
  const std::vector<ReducedChunk> chunks = reduced_chunks(b);
  std::vector<int> out;
  for (size_t next = 0; next < chunks.size() + kAhead; ++next) {
    if (next < chunks.size()) {
      const ReducedChunk& one = chunks[next];
      const int summed =
          b.local(Routine::kReduceScatter, one.chunk.whole, one.staged, one.chunk.slices, -1);
      out.push_back(b.cross(Routine::kReduce, one.staged, one.staged, {one.staged.count}, summed));
    }
    if (next >= kAhead) reduce_in(b, chunks[next - kAhead], out[next - kAhead]);
  }
}

}  // namespace

// While chunk i comes in, i + 1 and i + 2 are on the wire: a stage begins when those before it in
// the list have begun, so the order here is the overlap.
void add_chunked(Builder& b) {
  if (b.shape().routine == Routine::kReduce) return add_reduce(b);
  const std::vector<Chunk> chunks = chunks_of(b, Buffer::kOutput);
  std::vector<int> out;
  for (size_t next = 0; next < chunks.size() + kAhead; ++next) {
    if (next < chunks.size()) out.push_back(go_out(b, chunks[next]));
    if (next >= kAhead) come_in(b, chunks[next - kAhead], out[next - kAhead]);
  }
}

}  // namespace hanji::comm::hierarchical
