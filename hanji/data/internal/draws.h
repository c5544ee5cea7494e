#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "hanji/base/normal.h"
#include "hanji/base/random.h"

namespace hanji::data::internal {

/// Random numbers of one generated sample, in order.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}

  double uniform() {
    if (next_ % 4 == 0) words_ = base::Philox::draw(key_, 0, next_ / 4);
    return base::uniform(words_[next_++ % 4]);
  }
  int64_t below(int64_t count) {
    return static_cast<int64_t>(uniform() * static_cast<double>(count));
  }
  double normal() { return base::normal_quantile(std::clamp(uniform(), 0x1p-33, 1 - 0x1p-33)); }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
  std::array<uint32_t, 4> words_ = {};
};

}  // namespace hanji::data::internal
