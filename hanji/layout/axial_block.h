#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hanji/layout/axial.h"
#include "hanji/layout/range.h"

namespace hanji::layout {

/// An Evoformer block of one sample on the ranks of an axis.
struct AxialBlock {
  int64_t residues = 256;
  int64_t sequences = 128;  ///< 0: pairs alone.
  int64_t width = 128;      ///< Channels of a pair; a residue of a sequence has twice as many.
  int64_t heads = 4;        ///< Of triangle attention; attention over sequences has twice as many.
  int ranks = 1;
  TriangleWay triangle = TriangleWay::kChannels;
  bool has_attention = true;  ///< Triangle attention.
  int64_t padded = 0;         ///< Residues at the end that a sample does not have: masked.
};

/// Another way to the same layout, and the elements that it would send forward.
struct AxialAlternative {
  std::string_view name;
  int64_t elements = 0;
};

/// What an operation of a block moves, in elements that all ranks send together; nothing: empty `what`.
struct AxialMove {
  std::string_view operation;
  std::string_view before, after;  ///< Layouts: "sequences", "residues", "rows", "columns".
  std::string_view what = {};
  std::string_view collective = {};
  int64_t forward = 0;
  int64_t backward = 0;
  std::vector<AxialAlternative> alternatives = {};
};

/// Of `size` rows that ranks share out as evenly as can be, lower ranks first, those of one rank.
int64_t axial_rows(int64_t size, int rank, int ranks);

/// Which of them: of all ranks one behind the other.
Range axial_range(int64_t size, int rank, int ranks);

/// Elements of the masks, which every rank has whole: of pairs, and of residues of sequences.
int64_t axial_mask_elements(const AxialBlock& block);

/// The moves of a block in their order. Result  exact, for sizes that the ranks do not divide too.
std::vector<AxialMove> axial_moves(const AxialBlock& block);

/// Elements that one triangle product holds on the first rank beside the rows of its operands and of itself.
int64_t triangle_elements(const AxialBlock& block);

}  // namespace hanji::layout
