#include "hanji/schedule/pairwise_tree.h"

#include <bit>

namespace hanji::schedule {

int64_t split_point(int64_t length) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length - 1)));
}

std::vector<int> pairwise_tree(int n) {
  // A binary counter: after leaf i, one combine per trailing one bit of i closes every complete
  // power of two; what is left at the end combines from the right, smallest first.
  std::vector<int> tree;
  int depth = 0;
  for (int i = 0; i < n; ++i) {
    tree.push_back(i);
    ++depth;
    const int closed = std::countr_one(static_cast<uint32_t>(i));
    tree.insert(tree.end(), closed, -1);
    depth -= closed;
  }
  if (depth > 1) tree.insert(tree.end(), depth - 1, -1);
  return tree;
}

}  // namespace hanji::schedule
