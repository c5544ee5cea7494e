#include "hanji/compute/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "hanji/base/status.h"
#include "hanji/compute/internal/parallel_rows.h"
#include "hanji/compute/internal/tensors.h"
#include "hanji/trace/own_kernel.h"

namespace hanji::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_targets(const at::Tensor& targets, int64_t vocabulary) {
  const auto* target = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (target[i] >= -1 && target[i] < vocabulary) continue;
    throw Error(base::invalid_argument("target " + std::to_string(target[i]) + " of row " +
                                       std::to_string(i) + " lies outside [-1, " +
                                       std::to_string(vocabulary) +
                                       "); is the vocabulary that of the data?"));
  }
}

struct CrossEntropySum : torch::autograd::Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& targets, bool overwrite) {
    const int64_t rows = logits.size(0), columns = logits.size(1);
    auto losses = at::empty({rows}, at::kDouble);
    // About 5 operations an element, which is read and, where its gradient takes its place, written.
    const trace::OwnKernel kernel(
        {.name = "hanji::cross_entropy",
         .flops = 5.0 * static_cast<double>(logits.numel()),
         .bytes = (overwrite ? 2 : 1) * static_cast<int64_t>(logits.nbytes())});
    internal::with_storage(logits.scalar_type(), [&]<class T>(T) {
      internal::parallel_rows(rows, columns, [&](const internal::Rows& part) {
        internal::cross_entropy<T>(part, internal::pointer<T>(logits), targets.data_ptr<int64_t>(),
                                   losses.data_ptr<double>(), overwrite);
      });
    });
    if (overwrite) context->saved_data["gradient"] = logits.detach();
    double total = 0;
    for (int64_t i = 0; i < rows; ++i) total += losses.data_ptr<double>()[i];
    return at::full({}, total, logits.options().dtype(internal::computed_in(logits.scalar_type())));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto gradient = context->saved_data["gradient"].toTensor();
    context->saved_data.erase("gradient");
    const double factor = gradients[0].item<double>();
    if (factor != 1) gradient.mul_(factor);
    return {gradient, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const auto dtype = internal::computed_in(logits.scalar_type());
  if (!internal::is_served(logits) || !targets.is_cpu()) {
    return at::cross_entropy_loss(logits.to(dtype), targets, {}, at::Reduction::Sum, -1);
  }
  const auto checked = targets.contiguous();
  check_targets(checked, logits.size(1));
  const bool overwrite = at::GradMode::is_enabled() && logits.requires_grad();
  return CrossEntropySum::apply(logits.contiguous(), checked, overwrite);
}

}  // namespace hanji::compute
