#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "hanji/compute/internal/philox_tensors.h"

namespace hanji::compute::internal {
namespace {

constexpr int64_t kWord = 0xFFFFFFFF;
constexpr int64_t kWordsADraw = 4;
constexpr int64_t kCountersAtOnce = 1 << 20;

at::Tensor low(const at::Tensor& x) { return x.bitwise_and(kWord); }
/// The shift copies the sign, which lies above a word.
at::Tensor high(const at::Tensor& x) { return at::bitwise_right_shift(x, 32).bitwise_and_(kWord); }

at::Tensor as_bits(uint64_t value, const at::Tensor& like) {
  return at::full({}, std::bit_cast<int64_t>(value), like.options());
}

/// keys [rows.size(0)] are those of the samples.
void fill_rows(const at::Tensor& keys, double probability, at::Tensor rows) {
  const int64_t elements = rows.size(1);
  const int64_t draws = (elements + kWordsADraw - 1) / kWordsADraw;
  const auto threshold = static_cast<int64_t>(std::ceil(std::ldexp(probability, 32)));
  const double kept = static_cast<float>(1.0 / (1.0 - probability));
  for (int64_t begin = 0; begin < draws; begin += kCountersAtOnce) {
    const int64_t end = std::min(draws, begin + kCountersAtOnce);
    const Words words = philox_words(keys.unsqueeze(1), 0, at::arange(begin, end, keys.options()));
    const at::Tensor drawn = at::stack(at::TensorList(words), -1).flatten(1);
    const int64_t count = std::min(elements - begin * kWordsADraw, drawn.size(1));
    at::Tensor part = rows.narrow(1, begin * kWordsADraw, count);
    part.copy_(drawn.narrow(1, 0, count).ge(threshold)).mul_(kept);
  }
}

}  // namespace

Words philox_words(const at::Tensor& keys, uint64_t counter_high, const at::Tensor& counters) {
  const at::Tensor upper = as_bits(counter_high, counters);
  Words x = {low(counters), high(counters), low(upper), high(upper)};
  at::Tensor key0 = low(keys), key1 = high(keys);
  for (int round = 0; round < 10; ++round) {
    // Products of two words fill the 64 bits, the sign among them.
    const at::Tensor product0 = x[0] * int64_t{0xD2511F53};
    const at::Tensor product1 = x[2] * int64_t{0xCD9E8D57};
    x = {high(product1).bitwise_xor(x[1]).bitwise_xor(key0), low(product1),
         high(product0).bitwise_xor(x[3]).bitwise_xor(key1), low(product0)};
    key0 = low(key0 + int64_t{0x9E3779B9});
    key1 = low(key1 + int64_t{0xBB67AE85});
  }
  return x;
}

at::Tensor mixed(uint64_t key, const at::Tensor& values) {
  const Words words = philox_words(as_bits(key, values), 0x68616E6A69, values);
  return at::bitwise_left_shift(words[1], 32).bitwise_or(words[0]);
}

at::Tensor mask_of_samples(const at::Tensor& keys, int64_t elements, double probability) {
  at::Tensor mask = at::empty({keys.size(0), elements}, keys.options().dtype(at::kFloat));
  const int64_t draws = (elements + kWordsADraw - 1) / kWordsADraw;
  const int64_t rows = std::max<int64_t>(1, kCountersAtOnce / draws);
  for (int64_t begin = 0; begin < keys.size(0); begin += rows) {
    const int64_t count = std::min(rows, keys.size(0) - begin);
    fill_rows(keys.narrow(0, begin, count), probability, mask.narrow(0, begin, count));
  }
  return mask;
}

}  // namespace hanji::compute::internal
