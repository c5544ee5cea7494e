#include "hanji/parallel/grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <unordered_set>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::parallel {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kLanes = 16;
constexpr double kClipEpsilon = 1e-6;

/// Sixteen running sums, folded in a fixed order: what the compiler vectorises, spelled out.
template <class T>
double sum_of_squares(const T* values, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = values[i];
    lanes[i % kLanes] += value * value;
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double tree_sum(std::span<const double> values) {
  if (values.empty()) return 0;
  if (values.size() == 1) return values[0];
  const size_t left = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

/// Appends the partial sums of one parameter's gradient.
template <class T>
void add_blocks(const T* values, int64_t count, std::vector<double>& partial_sums) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    partial_sums.push_back(sum_of_squares(values + begin, std::min(kBlock, count - begin)));
  }
}

template <class T>
double norm_of(const T* flat, const layout::FlatLayout& layout) {
  std::vector<double> partial_sums;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    add_blocks(flat + layout.offsets[i], layout.sizes[i], partial_sums);
  }
  return std::sqrt(tree_sum(partial_sums));
}

void add_gradient(const at::Tensor& gradient, std::vector<double>& partial_sums) {
  if (!gradient.is_cpu() || gradient.layout() != c10::Layout::Strided ||
      !gradient.is_floating_point()) {
    throw Error(base::unsupported("clip_grad_norm of a " + gradient.toString() +
                                  " gradient; it takes dense real ones on the CPU"));
  }
  if (gradient.scalar_type() == at::kDouble) {
    const at::Tensor values = gradient.contiguous();
    return add_blocks(values.const_data_ptr<double>(), values.numel(), partial_sums);
  }
  const at::Tensor values = gradient.to(at::kFloat).contiguous();
  add_blocks(values.const_data_ptr<float>(), values.numel(), partial_sums);
}

double norm_on_device(const at::Tensor& flat, const layout::FlatLayout& layout) {
  std::vector<at::Tensor> pieces;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    if (layout.sizes[i] > 0) pieces.push_back(flat.narrow(0, layout.offsets[i], layout.sizes[i]));
  }
  if (pieces.empty()) return 0;
  // One kernel for all: a launch for each parameter would take longer than the sums.
  const std::vector<at::Tensor> norms = at::_foreach_norm(pieces, 2, at::kDouble);
  return at::linalg_vector_norm(at::stack(norms), 2).item<double>();
}

}  // namespace

double grad_norm(const at::Tensor& flat, const layout::FlatLayout& layout) {
  if (!flat.is_cpu()) return norm_on_device(flat, layout);
  if (flat.scalar_type() == at::kFloat) return norm_of(flat.const_data_ptr<float>(), layout);
  if (flat.scalar_type() == at::kDouble) return norm_of(flat.const_data_ptr<double>(), layout);
  throw Error(base::unsupported(std::string("grad_norm of ") + c10::toString(flat.scalar_type()) +
                                "; keep gradients in float32 or float64"));
}

std::vector<double> norm_blocks(const at::Tensor& gradient) {
  std::vector<double> partial_sums;
  add_gradient(gradient, partial_sums);
  return partial_sums;
}

double norm_of_blocks(std::span<const double> partial_sums) {
  return std::sqrt(tree_sum(partial_sums));
}

double sum_of_blocks(std::span<const double> partial_sums) { return tree_sum(partial_sums); }

double clip_grad_norm(std::span<const at::Tensor> parameters, double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<double> partial_sums;
  for (const at::Tensor& gradient : distinct_gradients(parameters)) {
    add_gradient(gradient, partial_sums);
  }
  const double norm = norm_of_blocks(partial_sums);
  scale_to_norm(parameters, norm, max_norm);
  return norm;
}

std::vector<at::Tensor> distinct_gradients(std::span<const at::Tensor> parameters) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    const bool is_new = seen.insert(parameter.unsafeGetTensorImpl()).second;
    if (!is_new) {
      TORCH_WARN_ONCE(
          "a parameter was given several times, as module.parameters() gives tied "
          "weights: its gradient counts once");
    } else if (parameter.grad().defined()) {
      gradients.push_back(parameter.grad());
    }
  }
  return gradients;
}

void scale_to_norm(std::span<const at::Tensor> parameters, double norm, double max_norm) {
  const double divisor = clip_divisor(norm, max_norm);
  if (!std::isfinite(norm) || divisor == 1) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : distinct_gradients(parameters)) gradient.div_(divisor);
}

double clip_divisor(double norm, double max_norm) {
  return max_norm > 0 ? std::max(1.0, (norm + kClipEpsilon) / max_norm) : 1.0;
}

}  // namespace hanji::parallel
