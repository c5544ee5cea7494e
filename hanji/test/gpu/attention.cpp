// Attention as libtorch for CUDA chooses it on an H200: its flash kernel for halves, its
// memory-efficient one for float32, each computed by the flash kernel for CPUs.
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "hanji/test/gpu/counts.h"
#include "hanji/test/gpu/host_views.h"

namespace hanji::test::gpu {
namespace {

using at::Tensor;
using Mask = std::optional<Tensor>;
using Scale = std::optional<double>;

int64_t choice(const Tensor& query, const Tensor& key, const Tensor&, const Mask& mask, double,
               bool, Scale, bool) {
  const auto& context = at::globalContext();
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const bool whole = query.size(-1) % (half ? 8 : 4) == 0;
  if (half && !mask && query.size(-1) <= 256 && context.userEnabledFlashSDP()) {
    return static_cast<int64_t>(at::SDPBackend::flash_attention);
  }
  const bool same_heads = query.dim() < 3 || query.size(-3) == key.size(-3);
  if (query.scalar_type() != at::kDouble && whole && same_heads &&
      context.userEnabledMemEfficientSDP()) {
    return static_cast<int64_t>(at::SDPBackend::efficient_attention);
  }
  return static_cast<int64_t>(at::SDPBackend::math);
}

void refuse_dropout(double probability) {
  TORCH_CHECK_NOT_IMPLEMENTED(probability == 0,
                              "the stand-in for a GPU has no dropout within attention");
}

struct Attended {
  Tensor out, log_sums;
};

Attended attend(HostViews& views, const Tensor& query, const Tensor& key, const Tensor& value,
                const Mask& mask, bool causal, Scale scale) {
  const auto host_mask = mask && mask->defined() ? Mask(views.of(*mask)) : Mask();
  const auto [out, sums] = [&] {
    const OnHost now;
    return at::_scaled_dot_product_flash_attention_for_cpu(
        views.of(query), views.of(key), views.of(value), 0.0, causal, host_mask, scale);
  }();
  return {views.back(out), views.back(sums)};
}

std::tuple<Tensor, Tensor, Tensor> gradients(HostViews& views, const std::array<Tensor, 6>& kept,
                                             const Mask& mask, bool causal, Scale scale) {
  std::array<Tensor, 6> host;
  for (size_t i = 0; i < host.size(); ++i) host[i] = views.of(kept[i]);
  const auto host_mask = mask && mask->defined() ? Mask(views.of(*mask)) : Mask();
  const auto [query, key, value] = [&] {
    const OnHost now;
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        host[0], host[1], host[2], host[3], host[4], host[5], 0.0, causal, host_mask, scale);
  }();
  return {views.back(query), views.back(key), views.back(value)};
}

/// The state of random numbers lies on the device.
Tensor state(const Tensor& like) { return at::zeros({}, like.options().dtype(at::kLong)); }

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> flash(
    const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal, bool,
    Scale scale) {
  refuse_dropout(dropout);
  count_operation("aten::_scaled_dot_product_flash_attention");
  HostViews views;
  const Attended made = attend(views, query, key, value, {}, causal, scale);
  return {made.out,     made.log_sums, {},
          {},           query.size(2), key.size(2),
          state(query), state(query),  at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& gradient, const Tensor& query,
                                                  const Tensor& key, const Tensor& value,
                                                  const Tensor& out, const Tensor& sums,
                                                  const Tensor&, const Tensor&, c10::SymInt,
                                                  c10::SymInt, double, bool causal, const Tensor&,
                                                  const Tensor&, Scale scale) {
  count_operation("aten::_scaled_dot_product_flash_attention_backward");
  HostViews views;
  return gradients(views, {gradient, query, key, value, out, sums}, {}, causal, scale);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor& query, const Tensor& key,
                                                     const Tensor& value, const Mask& mask, bool,
                                                     double dropout, bool causal, Scale scale) {
  refuse_dropout(dropout);
  count_operation("aten::_scaled_dot_product_efficient_attention");
  HostViews views;
  const Attended made = attend(views, query, key, value, mask, causal, scale);
  return {made.out, made.log_sums, state(query), state(query)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& mask, const Tensor& out, const Tensor& sums, const Tensor&, const Tensor&, double,
    std::array<bool, 4> wanted, bool causal, Scale scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!wanted[3] || !mask.defined(),
                              "the stand-in for a GPU has no gradient of a mask of attention");
  count_operation("aten::_scaled_dot_product_efficient_attention_backward");
  HostViews views;
  const auto [g_query, g_key, g_value] =
      gradients(views, {gradient, query, key, value, out, sums}, mask, causal, scale);
  return {g_query, g_key, g_value, {}};
}

int64_t choice_of_op(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask,
                     double dropout, bool causal, Scale scale, bool grouped) {
  return choice(query, key, value, mask, dropout, causal, scale, grouped);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_fused_sdp_choice", &choice_of_op);
  library.impl("_scaled_dot_product_flash_attention", &flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
}

const bool kChooses = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choice);
  return true;
}();

}  // namespace
}  // namespace hanji::test::gpu
