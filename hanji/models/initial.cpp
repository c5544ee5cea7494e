#include "hanji/models/internal/initial.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hanji/base/normal.h"
#include "hanji/base/random.h"
#include "hanji/base/status.h"

namespace hanji::models {
namespace {

/// FNV-1a; names are few and short, and the value must never change.
uint64_t hash(std::string_view name) {
  uint64_t value = 14695981039346656037ULL;
  for (unsigned char c : name) value = (value ^ c) * 1099511628211ULL;
  return value;
}

/// P(x < -2) of the standard normal distribution, and the deviation of its part within [-2, 2].
constexpr double kTail = 0.022750131948179212;
constexpr double kTruncated = 0.87962566103423978;

/// value_of(p) of a p in (0, 1) for each element.
template <class T, class ValueOf>
void fill(T* out, int64_t count, uint64_t key, const ValueOf& value_of) {
  for (int64_t begin = 0; begin < count; begin += 4) {
    const auto bits = base::Philox::draw(key, 0, static_cast<uint64_t>(begin / 4));
    const int64_t end = std::min(count, begin + 4);
    for (int64_t i = begin; i < end; ++i) {
      const double p = (bits[static_cast<size_t>(i - begin)] + 0.5) * 0x1p-32;
      out[i] = static_cast<T>(value_of(p));
    }
  }
}

template <class ValueOf>
void fill_by_name(at::Tensor& tensor, uint64_t seed, std::string_view name,
                  const ValueOf& value_of) {
  if (tensor.is_meta()) {
    throw Error(base::unsupported("model: '" + std::string(name) +
                                  "' has no memory to write initial values to; build the model "
                                  "outside of hanji::deferred"));
  }
  const uint64_t key = base::mix(seed, hash(name));
  if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>(), tensor.numel(), key, value_of);
  } else {
    fill(tensor.data_ptr<float>(), tensor.numel(), key, value_of);
  }
}

}  // namespace

void fill_normal(at::Tensor& tensor, double deviation, uint64_t seed, std::string_view name) {
  fill_by_name(tensor, seed, name, [=](double p) { return deviation * base::normal_quantile(p); });
}

void fill_truncated_normal(at::Tensor& tensor, double deviation, uint64_t seed,
                           std::string_view name) {
  fill_by_name(tensor, seed, name, [=](double p) {
    return deviation / kTruncated * base::normal_quantile(kTail + p * (1 - 2 * kTail));
  });
}

void fill_uniform(at::Tensor& tensor, double limit, uint64_t seed, std::string_view name) {
  fill_by_name(tensor, seed, name, [=](double p) { return limit * (2 * p - 1); });
}

bool is_own(const std::vector<layout::Range>& own, std::initializer_list<int64_t> layers) {
  return own.empty() || std::ranges::any_of(own, [&](const layout::Range& range) {
           return std::ranges::any_of(
               layers, [&](int64_t layer) { return range.begin <= layer && layer < range.end; });
         });
}

at::Tensor sizes_alone(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options).expand(sizes);
}

}  // namespace hanji::models
