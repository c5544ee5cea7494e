#include "hanji/schedule/internal/folding.h"

namespace hanji::schedule::internal {

std::vector<int> Folding::tree() const {
  std::vector<int> tree;
  for (int place = 0; place < core; ++place) {
    tree.push_back(rank_at(place));
    if (place < extra) tree.insert(tree.end(), {rank_at(place) + 1, -1});
    tree.insert(tree.end(), std::countr_one(static_cast<unsigned>(place)), -1);
  }
  return tree;
}

}  // namespace hanji::schedule::internal
