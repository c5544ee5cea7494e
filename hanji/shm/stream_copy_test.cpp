#include "hanji/shm/internal/stream_copy.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

namespace hanji::shm::internal {
namespace {

TEST(StreamCopy, CopiesEveryByteAndNoOther) {
  std::vector<uint8_t> source(5000);
  std::iota(source.begin(), source.end(), 1);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 1000, 4096}) {
    for (const size_t to : {0, 1, 16, 63}) {
      for (const size_t from : {0, 7, 64}) {
        std::vector<uint8_t> target(5000, 0xEE);
        stream_copy(target.data() + to, source.data() + from, bytes);
        for (size_t i = 0; i < target.size(); ++i) {
          const bool copied = i >= to && i < to + bytes;
          ASSERT_EQ(target[i], copied ? source[from + i - to] : 0xEE)
              << bytes << " bytes from " << from << " to " << to << ", byte " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hanji::shm::internal
