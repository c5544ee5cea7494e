#include "hanji/compute/layer_norm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "hanji/base/status.h"
#include "hanji/compute/internal/parallel_rows.h"
#include "hanji/compute/internal/tensors.h"
#include "hanji/trace/own_kernel.h"

namespace hanji::compute {
namespace {

using internal::ComputedIn;
using internal::pointer;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T>
T* later(T* begin, int64_t elements) {
  return begin == nullptr ? nullptr : begin + elements;
}

/// Of all rows from `row` on.
template <class T>
internal::NormBackward<T> from_row(internal::NormBackward<T> a, int64_t row, int64_t columns) {
  const int64_t first = row * columns;
  a.g += first;
  a.g_sum = later(a.g_sum, first);
  a.sum += first;
  a.mean += row;
  a.inverse += row;
  a.gx += first;
  a.g_delta = later(a.g_delta, first);
  return a;
}

/// Of a bias that only the sum's gradient reaches; it may be undefined.
at::Tensor bias_gradient(const at::Tensor& g, const at::Tensor& bias,
                         const std::vector<int64_t>& blocks) {
  if (!bias.defined() || bias.dim() > 1) return bias.defined() ? sums_of_blocks(g, blocks) : bias;
  return g.sum_to_size(bias.sizes());
}

struct Arguments {
  const Delta* delta;
  const LayerNorm* norm;
  at::ScalarType dtype;
};

/// About 8 operations an element and direction; a backward also reads what the forward has written.
trace::KernelWork norm_work(const at::Tensor& x, bool has_delta, bool is_backward) {
  const int tensors = (has_delta ? 4 : 2) + (is_backward ? 1 : 0);
  return {.name = "hanji::layer_norm",
          .flops = (is_backward ? 16.0 : 8.0) * static_cast<double>(x.numel()),
          .bytes = tensors * static_cast<int64_t>(x.nbytes())};
}

/// Outputs: normed and, where there is a delta, the sum.
struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const std::optional<at::Tensor>& delta_or_none,
                               const std::optional<at::Tensor>& delta_bias_or_none,
                               const at::Tensor& weight, const at::Tensor& bias,
                               const Arguments* a) {
    // An absent tensor must not enter autograd as an undefined one.
    const auto delta = delta_or_none.value_or(at::Tensor());
    const auto delta_bias = delta_bias_or_none.value_or(at::Tensor());
    const auto residual = input.contiguous();
    const auto branch = delta.defined() ? delta.contiguous() : delta;
    const int64_t columns = residual.size(-1), count = residual.numel() / columns;
    auto out = at::empty_like(residual, residual.options().dtype(a->dtype));
    auto sum = delta.defined() ? at::empty_like(residual) : at::Tensor();
    auto moments = at::empty({2, count}, residual.options());
    const trace::OwnKernel kernel(norm_work(residual, delta.defined(), false));
    internal::with_storage(a->dtype, [&]<class T>(T) {
      using C = ComputedIn<T>;
      const internal::NormForward<T> arguments{
          pointer<C>(residual),   pointer<T>(branch),
          pointer<C>(delta_bias), pointer<C>(weight),
          pointer<C>(bias),       static_cast<C>(a->norm->epsilon),
          pointer<C>(sum),        pointer<T>(out),
          pointer<C>(moments),    pointer<C>(moments) + count};
      internal::parallel_rows(count, columns, [&](const internal::Rows& rows) {
        internal::norm_forward<T>(rows, arguments);
      });
    });
    context->set_materialize_grads(false);
    context->save_for_backward(
        {delta.defined() ? sum : residual, moments, delta_bias, weight, bias});
    context->saved_data["has_delta"] = delta.defined();
    context->saved_data["blocks"] =
        a->norm->blocks.empty() ? std::vector<int64_t>{count} : a->norm->blocks;
    context->saved_data["slots"] =
        std::vector<at::Tensor>{a->delta->bias.slot, a->norm->weight.slot, a->norm->bias.slot};
    if (!delta.defined()) return {out};
    return {out, sum};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &sum = saved[0], &moments = saved[1], &weight = saved[3];
    const bool has_delta = context->saved_data["has_delta"].toBool();
    const auto slots = context->saved_data["slots"].toTensorVector();
    const auto blocks = context->saved_data["blocks"].toIntVector();
    const auto g_sum =
        has_delta && gradients[1].defined() ? gradients[1].contiguous() : at::Tensor();
    if (!gradients[0].defined()) {
      return {g_sum, g_sum, bias_gradient(g_sum, saved[2], blocks), {}, {}, {}};
    }
    const auto g = gradients[0].contiguous();
    const int64_t columns = sum.size(-1), count = sum.numel() / columns;
    auto gx = at::empty_like(sum);
    const bool narrow = has_delta && g.scalar_type() != sum.scalar_type();
    auto g_delta = narrow ? at::empty_like(g) : at::Tensor();
    const int64_t most = *std::ranges::max_element(blocks);
    auto sums = at::empty({3, internal::num_sums(most), columns}, sum.options());
    auto g_weight = gradient_memory({weight, slots[1]});
    auto g_bias = gradient_memory({saved[4], slots[2]});
    auto g_delta_bias = saved[2].defined() ? gradient_memory({saved[2], slots[0]}) : at::Tensor();
    const trace::OwnKernel kernel(norm_work(sum, has_delta, true));
    internal::with_storage(g.scalar_type(), [&]<class T>(T) {
      using C = ComputedIn<T>;
      C* parts = pointer<C>(sums);
      const int64_t stride = sums.size(1) * columns;
      const internal::NormBackward<T> arguments{
          pointer<T>(g),       pointer<C>(g_sum),           pointer<C>(sum),
          pointer<C>(moments), pointer<C>(moments) + count, pointer<C>(weight),
          pointer<C>(gx),      pointer<T>(g_delta),         parts,
          parts + stride,      parts + 2 * stride};
      int64_t row = 0, block = 0;
      for (const int64_t size : blocks) {
        const auto own = from_row(arguments, row, columns);
        internal::parallel_rows(size, columns, [&](const internal::Rows& rows) {
          internal::norm_backward<T>(rows, own);
        });
        int64_t part = 0;
        for (const auto& total : {g_weight, g_bias, g_delta_bias}) {
          if (total.defined()) {
            internal::sum_rows(parts + part * stride, internal::num_sums(size), columns,
                               pointer<C>(total) + block * columns);
          }
          ++part;
        }
        row += size;
        ++block;
      }
    });
    if (!has_delta) return {gx, {}, {}, g_weight, g_bias, {}};
    return {gx, narrow ? g_delta : gx, g_delta_bias, g_weight, g_bias, {}};
  }
};

bool is_served(const at::Tensor& residual, const Delta& delta, at::ScalarType dtype) {
  return internal::is_served(residual) && residual.numel() > 0 &&
         residual.scalar_type() == internal::computed_in(dtype) &&
         (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16) &&
         (!delta.value.defined() || delta.value.scalar_type() == dtype) &&
         (delta.value.defined() || !delta.bias.value.defined());
}

void check_blocks(const at::Tensor& residual, const Delta& delta, const LayerNorm& norm,
                  at::ScalarType dtype) {
  if (norm.blocks.empty()) return;
  const int64_t rows = residual.numel() / residual.size(-1);
  const int64_t all = std::reduce(norm.blocks.begin(), norm.blocks.end());
  if (all == rows && is_served(residual, delta, dtype)) return;
  throw Error(base::invalid_argument(
      fmt::format("layer_norm: {} blocks of {} rows for a tensor of {} rows; give blocks that make "
                  "up its rows, of a dtype that its kernel takes",
                  norm.blocks.size(), all, rows)));
}

}  // namespace

at::Tensor sums_of_blocks(const at::Tensor& g, const std::vector<int64_t>& blocks) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& rows : g.reshape({-1, g.size(-1)}).split_with_sizes(blocks)) {
    sums.push_back(rows.sum(0));
  }
  return at::stack(sums);
}

Normed add_layer_norm(const at::Tensor& residual, const Delta& delta, const LayerNorm& norm,
                      c10::ScalarType dtype) {
  check_blocks(residual, delta, norm, dtype);
  if (is_served(residual, delta, dtype)) {
    const Arguments arguments{&delta, &norm, dtype};
    auto present = [](const at::Tensor& x) {
      return x.defined() ? std::optional(x) : std::nullopt;
    };
    auto outputs = AddLayerNorm::apply(residual, present(delta.value), present(delta.bias.value),
                                       norm.weight.value, norm.bias.value, &arguments);
    return {outputs.size() > 1 ? outputs[1] : residual, outputs[0]};
  }
  auto sum = residual;
  if (delta.value.defined()) sum = sum + delta.value;
  if (delta.bias.value.defined()) sum = sum + delta.bias.value;
  auto normed =
      at::layer_norm(sum, {sum.size(-1)}, norm.weight.value, norm.bias.value, norm.epsilon);
  return {sum, normed.to(dtype)};
}

}  // namespace hanji::compute
