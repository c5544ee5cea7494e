#include "hanji/parallel/tensor/gathered_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "hanji/base/status.h"
#include "hanji/compute/deferred.h"
#include "hanji/compute/linear.h"
#include "hanji/compute/product.h"

namespace hanji::parallel::tensor::internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A weight's parts on an axis, and the ways between them and the whole.
struct WeightParts : torch::CustomClassHolder {
  WeightParts(Axis ranks, int64_t cut_dim, Extents sizes)
      : axis(std::move(ranks)), dim(cut_dim), extents(std::move(sizes)) {}

  at::Tensor whole(const at::Tensor& part, c10::ScalarType dtype) const {
    return axis.gather(part.detach().to(dtype), dim, extents);
  }
  at::Tensor own_gradient(const at::Tensor& term) const {
    return axis.scatter_sum(term, dim, extents);
  }

  Axis axis;
  int64_t dim;
  Extents extents;
};

struct GatheredLinear : torch::autograd::Function<GatheredLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& value,
                            c10::intrusive_ptr<WeightParts> parts) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor w = parts->whole(value, x.scalar_type());
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = w.size(0);
    context->save_for_backward({rows, value});
    context->saved_data["parts"] = c10::IValue::make_capsule(std::move(parts));
    return at::mm(rows, w.t()).view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto held = context->saved_data["parts"].toCapsule();
    const auto& parts = static_cast<const WeightParts&>(*held);
    const at::Tensor& rows = saved[0];
    const at::Tensor g = gradients[0].reshape({-1, gradients[0].size(-1)});
    at::Tensor gx, gw;
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> sizes = gradients[0].sizes().vec();
      sizes.back() = rows.size(1);
      gx = at::mm(g, parts.whole(saved[1], rows.scalar_type())).view(sizes);
    }
    if (context->needs_input_grad(1)) {
      const auto product = [held, g, rows, dtype = saved[1].scalar_type()] {
        const auto& of = static_cast<const WeightParts&>(*held);
        const at::Tensor term = at::empty({g.size(1), rows.size(1)}, rows.options().dtype(dtype));
        compute::product_out(term, g.t(), rows);
        return of.own_gradient(term);
      };
      gw = compute::weight_gradient(1, {g, rows}, product);
    }
    return {gx, gw, {}};
  }
};

}  // namespace

at::Tensor gathered_linear(const at::Tensor& x, const compute::Weight& weight, int64_t dim,
                           const Axis& axis, const Extents& extents) {
  if (axis.num_blocks() > 1) {
    throw Error(base::unsupported(
        "an axis in blocks of features moves no weights; compute whole products (one block)"));
  }
  if (axis.degree() == 1) return compute::linear(x, weight);
  const int64_t own = weight.value.size(dim);
  Extents each = extents.empty() ? Extents(axis.degree(), own) : extents;
  return GatheredLinear::apply(x, weight.value,
                               c10::make_intrusive<WeightParts>(axis, dim, std::move(each)));
}

}  // namespace hanji::parallel::tensor::internal
