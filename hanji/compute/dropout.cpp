#include "hanji/compute/dropout.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "hanji/base/random.h"
#include "hanji/base/status.h"
#include "hanji/compute/internal/philox_tensors.h"

namespace hanji::compute {
namespace {

/// Zeroes or scales the elements [begin, end) of a sample; four per draw.
void fill_run(float* out, int64_t begin, int64_t end, double probability, uint64_t key) {
  const float keep = static_cast<float>(1.0 / (1.0 - probability));
  while (begin < end) {
    const auto bits = base::Philox::draw(key, 0, static_cast<uint64_t>(begin / 4));
    for (size_t lane = begin % 4; lane < 4 && begin < end; ++lane, ++begin) {
      *out++ = base::uniform(bits[lane]) < probability ? 0.0F : keep;
    }
  }
}

/// The elements of a sample that are here: `count` runs of `size`, `stride` apart, from `first` on.
struct Runs {
  int64_t count = 1, size = 0, stride = 0, first = 0;
};

Runs runs_of(const at::Tensor& x, const DropoutPart& part) {
  if (part.whole == 0) return {1, x[0].numel(), 0, 0};
  const int64_t dim = part.dim < 0 ? part.dim + x.dim() : part.dim;
  if (dim < 1 || dim >= x.dim() || part.begin < 0 || part.begin + x.size(dim) > part.whole) {
    throw Error(base::invalid_argument(fmt::format(
        "dropout: a tensor of {} dimensions from {} of {} along dimension {}; give a part of its "
        "whole along one of the dimensions behind the first",
        x.dim(), part.begin, part.whole, part.dim)));
  }
  Runs runs;
  for (int64_t d = 1; d < dim; ++d) runs.count *= x.size(d);
  const int64_t beside = x.stride(dim);
  return {runs.count, x.size(dim) * beside, part.whole * beside, part.begin * beside};
}

uint64_t key_of(const DropoutKey& key) {
  return base::mix(base::mix(key.seed, static_cast<uint64_t>(key.step)),
                   static_cast<uint64_t>(key.layer));
}

}  // namespace

at::Tensor internal::mask_by_operations(at::IntArrayRef sizes, double probability,
                                        const DropoutKey& key, const at::TensorOptions& options) {
  std::vector<int64_t> whole = sizes.vec();
  const int64_t count = std::ssize(whole);
  const int64_t dim = key.part.dim < 0 ? key.part.dim + count : key.part.dim;
  if (key.part.whole > 0) {
    runs_of(at::empty(sizes, at::TensorOptions(at::kFloat).device(at::kMeta)), key.part);
    whole[dim] = key.part.whole;
  }
  const int64_t elements = c10::multiply_integers(whole.begin() + 1, whole.end());
  const auto numbers = at::TensorOptions(at::kLong).device(options.device());
  const at::Tensor samples = at::arange(key.first_sample, key.first_sample + sizes[0], numbers);
  at::Tensor shaped =
      internal::mask_of_samples(internal::mixed(key_of(key), samples), elements, probability)
          .view(whole);
  if (key.part.whole > 0) shaped = shaped.narrow(dim, key.part.begin, sizes[dim]).contiguous();
  return shaped.to(options);
}

at::Tensor dropout_mask(at::IntArrayRef sizes, double probability, const DropoutKey& key,
                        const at::TensorOptions& options) {
  const bool is_empty = c10::multiply_integers(sizes) == 0;
  // What the host made would wait to be copied.
  if (!is_empty && !options.device().is_cpu()) {
    return internal::mask_by_operations(sizes, probability, key, options);
  }
  auto mask = at::empty(sizes, at::TensorOptions(at::kFloat));
  if (is_empty) return mask.to(options);
  const Runs runs = runs_of(mask, key.part);
  const uint64_t base_key = key_of(key);
  float* out = mask.data_ptr<float>();
  for (int64_t b = 0; b < sizes[0]; ++b) {
    const uint64_t sample = base::mix(base_key, static_cast<uint64_t>(key.first_sample + b));
    for (int64_t run = 0; run < runs.count; ++run, out += runs.size) {
      const int64_t begin = runs.first + run * runs.stride;
      fill_run(out, begin, begin + runs.size, probability, sample);
    }
  }
  return mask.to(options);
}

at::Tensor dropout(const at::Tensor& x, double probability, const DropoutKey& key) {
  if (probability == 0) return x;
  return x * dropout_mask(x.sizes(), probability, key, x.options().requires_grad(false));
}

}  // namespace hanji::compute
