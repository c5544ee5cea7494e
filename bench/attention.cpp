// attention [--smoke]: how fast is causal attention in bf16 by hanji's kernels, against PyTorch's?
//
// Forward and backward on one thread, of queries, keys and values as a projection leaves them: by bf16 tiles
// against hanji's vectors of float32 and PyTorch's flash attention. Beside them the rate of a plain bf16
// product of the same layer, which is what the processor multiplies at. Rates of attention count the
// lower triangle. Results are compared with float64 first.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/memory.h"
#include "hanji/report/statistics.h"

using namespace hanji;
using compute::Attention;

namespace {

struct Sizes {
  int64_t samples, tokens, heads, width;
  double flops(double products) const {
    return products * static_cast<double>(samples * heads * width) *
           static_cast<double>(tokens * tokens);
  }
};
constexpr Sizes kSizes[] = {{4, 256, 6, 64}, {1, 1024, 6, 64}};

at::Tensor values(at::IntArrayRef sizes, double step) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).mul_(step).sin_().view(sizes);
}

/// The same queries, keys, values and gradient of the output, of every kernel.
struct Inputs {
  Sizes of;
  at::Tensor qkv, gradient;

  Inputs(const Sizes& sizes, at::ScalarType type) : of(sizes) {
    const int64_t width = of.heads * of.width;
    qkv = values({of.samples, of.tokens, 3 * width}, 0.9).to(at::kBFloat16).to(type);
    gradient = values({of.samples, of.tokens, width}, 1.7).to(at::kBFloat16).to(type);
    qkv.requires_grad_();
  }
};

at::Tensor ours(const Inputs& in, Attention attention) {
  const auto zeros =
      at::zeros({in.qkv.size(2)}, in.qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return compute::causal_attention(in.qkv, {zeros, {}},
                                   {.heads = in.of.heads, .attention = attention});
}

/// Attends as a module of PyTorch does, whose projection adds its bias.
at::Tensor torch_flash(const Inputs& in) {
  std::vector<at::Tensor> parts = in.qkv.chunk(3, 2);
  for (at::Tensor& part : parts) part = part.unflatten(2, {in.of.heads, -1}).transpose(1, 2);
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true)
      .transpose(1, 2)
      .flatten(2);
}

struct Kernel {
  std::string name;
  std::function<at::Tensor(const Inputs&)> forward;
};

std::vector<Kernel> kernels() {
  const auto by = [](Attention attention) {
    return [=](const Inputs& in) { return ours(in, attention); };
  };
  std::vector<Kernel> all = {{"math", by(Attention::kMath)}, {"pytorch", torch_flash}};
  if (compute::check_attention(Attention::kTiles, base::Precision::kBFloat16).ok()) {
    all.push_back({"tiles", by(Attention::kTiles)});
  }
  return all;
}

double distance(const at::Tensor& actual, const at::Tensor& exact) {
  return ((actual.to(at::kDouble) - exact).abs().max() / exact.abs().max()).item<double>();
}

/// The larger of the output's and the gradient's.
double error_of(const Kernel& kernel, const Sizes& of) {
  const Inputs in(of, at::kBFloat16), exact(of, at::kDouble);
  const at::Tensor y = kernel.forward(in), exact_y = ours(exact, Attention::kMath);
  y.backward(in.gradient);
  exact_y.backward(exact.gradient);
  const double error = std::max(distance(y, exact_y), distance(in.qkv.grad(), exact.qkv.grad()));
  if (!(error < 0.03)) {
    throw std::runtime_error(fmt::format("attention by {} is off by {:.1e}", kernel.name, error));
  }
  return error;
}

double seconds_of(const Kernel& kernel, const Inputs& in, int passes) {
  const int64_t start_ns = base::now_ns();
  for (int pass = 0; pass < passes; ++pass) {
    kernel.forward(in).backward(in.gradient);
    in.qkv.mutable_grad().reset();
  }
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9 / passes;
}

/// Rate of plain bf16 products: the up-projection of an MLP on as many tokens.
double rate_of_products(const Sizes& of, int passes) {
  const int64_t rows = of.samples * of.tokens, width = of.heads * of.width;
  const at::Tensor x = values({rows, width}, 0.7).to(at::kBFloat16),
                   weight = values({4 * width, width}, 1.3).to(at::kBFloat16);
  at::Tensor y = at::mm(x, weight.t());
  const int64_t start_ns = base::now_ns();
  for (int pass = 0; pass < passes; ++pass) at::mm_out(y, x, weight.t());
  return 8.0 * static_cast<double>(rows * width * width) * passes * 1e9 /
         static_cast<double>(base::now_ns() - start_ns);
}

struct Effort {
  int rounds, passes;
};

void compare(const Sizes& of, Effort effort) {
  const std::vector<Kernel> all = kernels();
  std::vector<double> errors;
  for (const Kernel& kernel : all) errors.push_back(error_of(kernel, of));
  const Inputs in(of, at::kBFloat16);
  std::vector<std::vector<double>> seconds(all.size());
  std::vector<double> products;
  for (int round = -1; round < effort.rounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t which = round % 2 == 0 ? i : all.size() - 1 - i;
      const double taken = seconds_of(all[which], in, effort.passes);
      if (round >= 0) seconds[which].push_back(taken);
    }
    const double rate = rate_of_products(of, effort.passes);
    if (round >= 0) products.push_back(rate);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<double>
        ratios;  // the other's time over that of the last: tiles, where there are any
    for (size_t round = 0; round < seconds[i].size(); ++round) {
      ratios.push_back(seconds[i][round] / seconds.back()[round]);
    }
    const auto interval = report::median_interval(ratios);
    fmt::print(
        "{{\"question\": \"attention\", \"tokens\": {}, \"samples\": {}, \"heads\": {}, \"width\": "
        "{}, "
        "\"kernel\": \"{}\", \"over\": \"{}\", \"flops_per_second\": {:.4g}, "
        "\"products_flops_per_second\": {:.4g}, \"error\": {:.2g}, \"ratio_median\": {:.3f}, "
        "\"ratio_interval_95\": [{:.3f}, {:.3f}], \"pairs\": {}}}\n",
        of.tokens, of.samples, of.heads, of.width, all[i].name, all.back().name,
        of.flops(7) / report::median(seconds[i]), report::median(products), errors[i],
        report::median(ratios), interval.low, interval.high, effort.rounds);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  compute::keep_freed_memory();
  at::set_num_threads(1);
  for (const Sizes& of : kSizes) compare(of, smoke ? Effort{3, 1} : Effort{60, 4});
}
