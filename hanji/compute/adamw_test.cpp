#include "hanji/compute/adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <gmock/gmock.h>

#include <vector>

#include "hanji/base/simd.h"
#include "hanji/base/status.h"

namespace hanji::compute {
namespace {

using base::Simd;

at::Tensor flat_values(int64_t count, double step) {
  return at::sin(at::arange(count, at::kDouble).mul(step)).to(at::kFloat);
}

AdamWTensors some(int64_t count) {
  return {flat_values(count, 0.7), flat_values(count, 1.3) * 5, flat_values(count, 0.3) * 0.1,
          flat_values(count, 0.9).square() * 0.01, at::zeros({count}, at::kBFloat16)};
}

AdamWTensors copy_of(const AdamWTensors& t) {
  return {t.parameter.clone(), t.gradient.clone(), t.first_moment.clone(), t.second_moment.clone(),
          t.rounded.clone()};
}

void update_by_libtorch(const AdamWTensors& t, const AdamWStep& step) {
  const auto of = [](const at::Tensor& one) { return std::vector<at::Tensor>{one}; };
  at::_fused_adamw_(of(t.parameter), of(t.gradient), of(t.first_moment), of(t.second_moment), {},
                    of(at::full({}, static_cast<float>(step.update))), step.learning_rate,
                    step.beta1, step.beta2, step.weight_decay, step.epsilon, false, false,
                    at::full({}, static_cast<float>(step.gradient_divisor)));
}

struct AtLevel {
  explicit AtLevel(Simd level) : before(base::simd_in_use().or_throw()) {
    base::throw_if_error(base::use_simd(level));
  }
  ~AtLevel() { (void)base::use_simd(before); }
  Simd before;
};

/// Whatever libtorch may use here has fused multiply-add.
TEST(AdamWUpdate, HasTheBitsOfLibtorchs) {
  constexpr int64_t kCount = 64 * 1001;
  for (const Simd level : {Simd::kAvx2, Simd::kAvx512}) {
    if (!base::check_simd(level).ok()) continue;
    const AtLevel at_level(level);
    for (const double decay : {0.0, 0.1}) {
      for (const double beta1 : {0.9, 0.3}) {
        const AdamWTensors ours = some(kCount), theirs = copy_of(ours);
        for (int64_t update = 1; update <= 3; ++update) {
          const AdamWStep step{3e-4, beta1, 0.95, 1e-8, decay, 37, update};
          theirs.gradient.copy_(ours.gradient);
          adamw_update(ours, step);
          update_by_libtorch(theirs, step);
          EXPECT_TRUE(at::equal(ours.parameter, theirs.parameter));
          EXPECT_TRUE(at::equal(ours.first_moment, theirs.first_moment));
          EXPECT_TRUE(at::equal(ours.second_moment, theirs.second_moment));
          EXPECT_TRUE(at::equal(ours.rounded, theirs.parameter.to(at::kBFloat16)));
        }
      }
    }
  }
}

TEST(AdamWUpdate, OnlyReadsTheGradient) {
  const AdamWTensors ours = some(130), before = copy_of(ours);
  adamw_update(ours, {1e-3, 0.9, 0.95, 1e-8, 0.1, 2, 1});
  EXPECT_TRUE(at::equal(ours.gradient, before.gradient));
  EXPECT_FALSE(at::equal(ours.parameter, before.parameter));
}

/// An element's bits depend on its own values alone: not on threads, on how many there are or where it lies.
TEST(AdamWUpdate, UpdatesEachElementByItself) {
  constexpr int64_t kCount = 200'001;
  const int threads = at::get_num_threads();
  const AdamWStep step{1e-3, 0.9, 0.95, 1e-8, 0.1, 2, 4};
  const AdamWTensors whole = some(kCount), on_threads = copy_of(whole), part = copy_of(whole);
  at::set_num_threads(1);
  adamw_update(whole, step);
  at::set_num_threads(3);
  adamw_update(on_threads, step);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(on_threads.parameter, whole.parameter));
  EXPECT_TRUE(at::equal(on_threads.rounded, whole.rounded));
  const auto cut = [](const at::Tensor& one) { return one.slice(0, 5, 1000); };
  adamw_update(
      {cut(part.parameter), cut(part.gradient), cut(part.first_moment), cut(part.second_moment)},
      step);
  EXPECT_TRUE(at::equal(cut(part.parameter), cut(whole.parameter)));
  EXPECT_TRUE(at::equal(cut(part.second_moment), cut(whole.second_moment)));
}

TEST(AdamWUpdate, RefusesTensorsThatDoNotFit) {
  AdamWTensors shorter = some(64);
  shorter.gradient = shorter.gradient.slice(0, 1);
  EXPECT_THROW(adamw_update(shorter, {}), Error);
  AdamWTensors wide = some(64);
  wide.rounded = wide.rounded.to(at::kFloat);
  EXPECT_THROW(adamw_update(wide, {}), Error);
}

}  // namespace
}  // namespace hanji::compute
