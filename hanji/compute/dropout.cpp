#include "hanji/compute/dropout.h"

#include <ATen/ATen.h>

#include "hanji/base/random.h"

namespace hanji::compute {
namespace {

/// Zeroes or scales `count` elements; four per draw.
void fill_sample(float* out, int64_t count, double probability, uint64_t key) {
  const float keep = static_cast<float>(1.0 / (1.0 - probability));
  for (int64_t begin = 0; begin < count; begin += 4) {
    const auto bits = base::Philox::draw(key, 0, static_cast<uint64_t>(begin / 4));
    const int64_t end = std::min<int64_t>(count, begin + 4);
    for (int64_t i = begin; i < end; ++i) {
      out[i] = base::uniform(bits[static_cast<size_t>(i - begin)]) < probability ? 0.0F : keep;
    }
  }
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                        const at::TensorOptions& options) {
  auto mask = at::empty(sizes, at::TensorOptions(at::kFloat));
  const int64_t samples = sizes[0];
  const int64_t count = samples == 0 ? 0 : mask.numel() / samples;
  const uint64_t base_key = base::mix(base::mix(key.seed, static_cast<uint64_t>(key.step)),
                                      static_cast<uint64_t>(key.layer));
  for (int64_t b = 0; b < samples; ++b) {
    const auto sample = static_cast<uint64_t>(key.first_sample + b);
    fill_sample(mask.data_ptr<float>() + b * count, count, probability,
                base::mix(base_key, sample));
  }
  return mask.to(options);
}

at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key) {
  if (probability == 0) return x;
  return x * dropout_mask(x.sizes(), probability, key, x.options().requires_grad(false));
}

}  // namespace hanji::compute
