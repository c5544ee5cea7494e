#include "hanji/compute/gelu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "hanji/compute/internal/parallel_rows.h"
#include "hanji/compute/internal/tensors.h"
#include "hanji/trace/own_kernel.h"

namespace hanji::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// About 10 operations an element and direction; it reads one tensor and writes another of its size, backward two.
trace::KernelWork gelu_work(const at::Tensor& x, int directions) {
  return {.name = "hanji::bias_gelu",
          .flops = 10.0 * directions * static_cast<double>(x.numel()),
          .bytes = (directions + 1) * static_cast<int64_t>(x.nbytes())};
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias, const Weight* weight) {
    auto x = input.contiguous();
    context->save_for_backward({x, bias});
    context->saved_data["slot"] = weight->slot;
    auto out = at::empty_like(x);
    const trace::OwnKernel kernel(gelu_work(x, 1));
    internal::with_storage(x.scalar_type(), [&]<class T>(T) {
      internal::parallel_rows(x.numel() / x.size(-1), x.size(-1), [&](const internal::Rows& rows) {
        internal::gelu_forward<T>(rows, internal::pointer<T>(x),
                                  internal::pointer<internal::ComputedIn<T>>(bias),
                                  internal::pointer<T>(out));
      });
    });
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &bias = saved[1];
    const auto g = gradients[0].contiguous();
    const int64_t columns = x.size(-1), count = x.numel() / columns;
    auto gx = at::empty_like(x);
    auto sums = at::empty({internal::num_sums(count), columns}, bias.options());
    auto g_bias = gradient_memory({bias, context->saved_data["slot"].toTensor()});
    const trace::OwnKernel kernel(gelu_work(x, 2));
    internal::with_storage(x.scalar_type(), [&]<class T>(T) {
      using C = internal::ComputedIn<T>;
      const internal::GeluBackward<T> arguments{
          internal::pointer<T>(g), internal::pointer<T>(x), internal::pointer<C>(bias),
          internal::pointer<T>(gx), internal::pointer<C>(sums)};
      internal::parallel_rows(count, columns, [&](const internal::Rows& rows) {
        internal::gelu_backward<T>(rows, arguments);
      });
      internal::sum_rows(internal::pointer<C>(sums), sums.size(0), columns,
                         internal::pointer<C>(g_bias));
    });
    return {gx, g_bias, {}};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, const Weight& bias) {
  const bool served = internal::is_served(x) && x.numel() > 0 &&
                      bias.value.scalar_type() == internal::computed_in(x.scalar_type());
  if (served) return BiasGelu::apply(x, bias.value, &bias);
  return at::gelu(x + bias.value.to(x.scalar_type()), "tanh");
}

}  // namespace hanji::compute
