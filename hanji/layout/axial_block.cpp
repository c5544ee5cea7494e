#include "hanji/layout/axial_block.h"

#include <algorithm>

namespace hanji::layout {
namespace {

constexpr std::string_view kAllGather = "all_gather", kAllToAll = "all_to_all";

class AxialMoves {
 public:
  explicit AxialMoves(const AxialBlock& block) : block_(block) {}

  std::vector<AxialMove> take() {
    if (block_.sequences > 0) add_sequences();
    add_triangle("triangle multiplication, outgoing", true);
    add_triangle("triangle multiplication, incoming", false);
    if (block_.has_attention) add_triangle_attention();
    moves_.push_back({"transition of pairs", "rows", "rows"});
    return std::move(moves_);
  }

 private:
  int64_t pair() const { return block_.residues * block_.residues; }
  int64_t gathered(int64_t elements) const { return (block_.ranks - 1) * elements; }

  /// Of [a, b, rest] cut along a, then along b: all but what stays on its rank.
  int64_t transposed(int64_t a, int64_t b, int64_t rest) const {
    int64_t stays = 0;
    for (int rank = 0; rank < block_.ranks; ++rank) {
      stays += axial_rows(a, rank, block_.ranks) * axial_rows(b, rank, block_.ranks);
    }
    return rest * (a * b - stays);
  }

  void add_gather(std::string_view operation, std::string_view before, std::string_view after,
                  std::string_view what, int64_t elements) {
    const int64_t sent = gathered(elements);
    moves_.push_back({operation, before, after, what, kAllGather, sent, sent});
  }

  void add_transpose(std::string_view operation, std::string_view before, std::string_view after,
                     std::string_view what, int64_t sent, int64_t whole) {
    moves_.push_back(
        {operation, before, after, what, kAllToAll, sent, sent, {{kAllGather, gathered(whole)}}});
  }

  void add_sequences() {
    const int64_t n = block_.residues, s = block_.sequences, c = 2 * block_.width;
    const int64_t moved = transposed(s, n, c);
    add_gather("attention along sequences", "sequences", "sequences", "bias of pairs",
               2 * block_.heads * pair());
    add_transpose("attention along residues", "sequences", "residues", "sequences", moved,
                  s * n * c);
    moves_.push_back({"transition of sequences", "residues", "residues"});
    add_gather("outer product mean", "residues", "rows", "one projection",
               block_.width / block_.heads * s * n);
    add_transpose("outer product mean", "residues", "sequences", "sequences", moved, s * n * c);
  }

  int64_t product_forward(TriangleWay way) const {
    const int64_t n = block_.residues, c = block_.width;
    return way == TriangleWay::kChannels ? 3 * transposed(n, c, n) : gathered(pair() * c);
  }

  void add_triangle(std::string_view operation, bool is_outgoing) {
    const TriangleWay way = block_.triangle;
    const int64_t forward = product_forward(way);
    // A ring brings the sums of an operand's gradient home, one step more than the operand goes.
    const bool brings_sums = way == TriangleWay::kRing && is_outgoing && block_.ranks > 1;
    const int64_t sums = brings_sums ? block_.ranks * pair() * block_.width : 0;
    AxialMove move{
        operation, "rows",        "rows", "operands", kTriangleWayNames[static_cast<size_t>(way)],
        forward,   forward + sums};
    for (const TriangleWay other :
         {TriangleWay::kGather, TriangleWay::kRing, TriangleWay::kChannels}) {
      if (other == way) continue;
      move.alternatives.push_back(
          {kTriangleWayNames[static_cast<size_t>(other)], product_forward(other)});
    }
    moves_.push_back(std::move(move));
  }

  void add_triangle_attention() {
    const int64_t n = block_.residues, c = block_.width, bias = block_.heads * pair();
    const int64_t moved = transposed(n, n, c);
    add_gather("triangle attention, start", "rows", "rows", "bias", bias);
    add_transpose("triangle attention, end", "rows", "columns", "pairs", moved, pair() * c);
    add_gather("triangle attention, end", "columns", "columns", "bias", bias);
    add_transpose("triangle attention, end", "columns", "rows", "pairs", moved, pair() * c);
  }

  const AxialBlock& block_;
  std::vector<AxialMove> moves_;
};

}  // namespace

int64_t axial_rows(int64_t size, int rank, int ranks) {
  return size / ranks + (rank < size % ranks ? 1 : 0);
}

Range axial_range(int64_t size, int rank, int ranks) {
  const int64_t begin = rank * (size / ranks) + std::min<int64_t>(rank, size % ranks);
  return {begin, begin + axial_rows(size, rank, ranks)};
}

int64_t axial_mask_elements(const AxialBlock& block) {
  return block.residues * (block.residues + block.sequences);
}

std::vector<AxialMove> axial_moves(const AxialBlock& block) { return AxialMoves(block).take(); }

int64_t triangle_elements(const AxialBlock& block) {
  if (block.ranks == 1) return 0;
  const int64_t row = block.residues * block.width;
  const int64_t rows = axial_rows(block.residues, 0, block.ranks);
  const int64_t channels = axial_rows(block.width, 0, block.ranks);
  switch (block.triangle) {
    case TriangleWay::kGather: return block.residues * row;
    case TriangleWay::kRing: return 2 * rows * row;
    case TriangleWay::kChannels:
    case TriangleWay::kAuto: break;
  }
  return 3 * block.residues * block.residues * channels;
}

}  // namespace hanji::layout
