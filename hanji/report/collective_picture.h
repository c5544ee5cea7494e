#pragma once

#include <string>
#include <vector>

#include "hanji/schedule/operation.h"

namespace hanji::report {

/// What a routine does to the buffers of each rank, as a drawing: one label per piece, rank r's own
/// pieces named by the letter of r. An empty label is a piece that the routine does not define.
struct CollectivePicture {
  schedule::Routine routine = schedule::Routine::kBroadcast;
  int ranks = 0;
  int root = 0;
  std::vector<std::vector<std::string>> before;  ///< Per rank.
  std::vector<std::vector<std::string>> after;
};

/// The most ranks that are drawn; letters and columns end there.
inline constexpr int kMaxDrawnRanks = 8;

/// A send goes from `root` to the rank after it. Of a barrier the pieces are moments, rank 0 comes first.
///
/// Shape   1 <= ranks <= kMaxDrawnRanks, 0 <= root < ranks. A tree_reduce, whose list comes from its grains, has
///         no picture: both sides are empty.
CollectivePicture draw_collective(schedule::Routine routine, int ranks, int root);

/// Two columns of ASCII, a line per rank.
std::string to_text(const CollectivePicture& picture);
/// What the labels of the picture mean, in a sentence; empty without a picture.
std::string legend_of(const CollectivePicture& picture);
/// {"before": [["a"], ...], "after": [...]}, one array per rank.
std::string to_json(const CollectivePicture& picture);
/// The same as a standalone SVG.
std::string to_svg(const CollectivePicture& picture);

}  // namespace hanji::report
