#include "hanji/lens/internal/tape.h"

#include <set>
#include <unordered_map>
#include <utility>

namespace hanji::lens {

int64_t Slot::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

bool Slot::is_whole(int64_t storage_bytes) const {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return offset == 0 && numel() * static_cast<int64_t>(c10::elementSize(dtype)) == storage_bytes;
}

std::vector<int> Tape::needed(int storage, int end) const {
  std::set<int> found;
  std::unordered_map<int, int> known;  // per storage, the end up to which it was followed
  std::vector<std::pair<int, int>> open = {{storage, end}};
  while (!open.empty()) {
    const auto [number, until] = open.back();
    open.pop_back();
    int& followed = known.try_emplace(number, -1).first->second;
    if (followed >= until) continue;
    followed = until;
    for (const int entry : this->storage(number).entries) {
      if (entry >= until || !found.insert(entry).second) continue;
      const Entry& own = entries[static_cast<size_t>(entry)];
      for (const int read : own.reads) open.emplace_back(read, entry);
      // What it made or wrote beside: the results of one operation come together.
      for (const int written : own.writes) open.emplace_back(written, entry);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace hanji::lens
