#include "hanji/parallel/stochastic_rounding.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "hanji/base/random.h"
#include "hanji/base/status.h"

namespace hanji::parallel {
namespace {

constexpr int64_t kPerDraw = 8;  // halves of four words

/// The 16 random bits of an element, out of the words of its block of eight.
uint32_t bits_of(const std::array<uint32_t, 4>& words, int64_t place) {
  return words[place / 2] >> (place % 2 * 16) & 0xFFFF;
}

class Stochastic : public FlatOptimizer {
 public:
  Stochastic(FlatPart part, const MakeOptimizer& make, uint64_t seed, int64_t first,
             const SumOverParts& sum)
      : part_(std::move(part)),
        seed_(seed),
        first_(first),
        parameters_(part_.parameters.to(at::kFloat)),
        gradients_(part_.gradients.to(at::kFloat)),
        inner_(make({parameters_, gradients_, part_.pieces}, sum)) {}

  void step(double learning_rate, double gradient_divisor) override {
    const at::NoGradGuard no_grad;
    parameters_.copy_(part_.parameters);
    gradients_.copy_(part_.gradients);
    inner_->set_num_updates(num_updates_);
    inner_->step(learning_rate, gradient_divisor);
    ++num_updates_;
    round_stochastically(parameters_, part_.parameters, base::mix(seed_, num_updates_), first_);
  }
  std::vector<NamedParameter> state() const override { return inner_->state(); }

 private:
  FlatPart part_;
  uint64_t seed_;
  int64_t first_;
  at::Tensor parameters_, gradients_;
  std::unique_ptr<FlatOptimizer> inner_;
};

}  // namespace

void round_stochastically(const at::Tensor& from, const at::Tensor& to, uint64_t key,
                          int64_t first) {
  if (from.scalar_type() != at::kFloat || to.scalar_type() != at::kBFloat16 || !from.is_cpu() ||
      !to.is_cpu() || !from.is_contiguous() || !to.is_contiguous() || from.numel() != to.numel()) {
    throw Error(base::invalid_argument("round_stochastically from " + from.toString() + " to " +
                                       to.toString() +
                                       "; it takes float32 to bfloat16 of one size on the CPU"));
  }
  const auto* in = from.const_data_ptr<float>();
  auto* out = to.mutable_data_ptr<at::BFloat16>();
  std::array<uint32_t, 4> words{};
  for (int64_t i = 0; i < from.numel(); ++i) {
    const int64_t place = (first + i) % kPerDraw;
    if (place == 0 || i == 0) {
      words = base::Philox::draw(key, 0, static_cast<uint64_t>((first + i) / kPerDraw));
    }
    if (!std::isfinite(in[i])) {
      out[i] = in[i];
      continue;
    }
    const uint32_t value = std::bit_cast<uint32_t>(in[i]) + bits_of(words, place);
    out[i].x = static_cast<uint16_t>(value >> 16);
  }
}

std::unique_ptr<FlatOptimizer> flat_stochastic(FlatPart part, const MakeOptimizer& make,
                                               uint64_t seed, int64_t first,
                                               const SumOverParts& sum) {
  if (part.parameters.scalar_type() != at::kBFloat16 ||
      part.gradients.scalar_type() != at::kBFloat16) {
    throw Error(base::invalid_argument("flat_stochastic of " + part.parameters.toString() +
                                       "; it takes bfloat16 parameters and gradients"));
  }
  check_in_memory(part, "flat_stochastic");
  return std::make_unique<Stochastic>(std::move(part), make, seed, first, sum);
}

}  // namespace hanji::parallel
