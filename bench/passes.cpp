// passes [--preset baby] [--batch 4] [--seconds 3] [--smoke] [--json]: how near is every pass over memory of a step to
// the rate of memory?
//
// The passes between the products of a GPT's step, in float32 and bf16, on one thread: the plan's own operations
// as often as a step calls them, each on memory of its own, forwards in turn and backwards in reverse; the copies of
// weight gradients out of bf16, the gradients' norm and AdamW. Beside each pass are the bytes of the
// tensors that it reads and writes, and what those take at the rate of an update of 128 MiB in place in the same rounds.
// A pass may take less: what the one before it has left in the caches is not in memory.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hanji/compute/apply.h"
#include "hanji/compute/memory.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/plan/load_config.h"
#include "hanji/train/busy_ranks.h"
#include "hanji/train/operation_call.h"
#include "hanji/train/optimizer.h"
#include "hanji/train/prepare.h"

namespace {

using namespace hanji;
using plan::OperationKind;

struct Options {
  std::string preset = "baby";
  int64_t batch = 4;
  double seconds = 3;
  bool json = false;
};

/// What a step does `calls` times, and the bytes of one call.
struct Pass {
  std::string name;
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// A pass on memory of its own; of operations with a backward the second part is that.
struct Call {
  size_t pass = 0;
  std::function<void()> run;
};

plan::Plan plan_for(const Options& options, std::string_view dtype) {
  plan::ConfigSources sources;
  for (const std::string& one :
       {"model.preset=" + options.preset, std::string("model.vocabulary=256"),
        std::string("data.vocabulary=byte"), fmt::format("train.global_batch={}", options.batch),
        fmt::format("compute.dtype={}", dtype), std::string("compute.threads=1"),
        std::string("compute.slow_dtype=true"), std::string("run.ranks=1")}) {
    sources.overrides.push_back({one});
  }
  const plan::LoadedConfig loaded = plan::load_config(sources);
  base::throw_if_error(plan::to_status(loaded.mistakes));
  return train::prepare(loaded.config).or_throw();
}

/// Bytes of the tensors of a forward and of a backward, of which `wide` is the stream and `narrow` what products read.
struct Moved {
  int64_t forward = 0, backward = 0;
};
Moved moved_by(const plan::Operation& one, int64_t narrow) {
  constexpr int64_t kWide = 4;
  const int64_t elements = one.samples * one.rows * one.columns;
  const int64_t table = one.inner * one.columns;
  switch (one.kind) {
    // Stream and branch to their sum and the normed; gradients of both and the sum to those of stream and branch.
    case OperationKind::kNorm:
      return {elements * 2 * (kWide + narrow),
              elements * (3 * kWide + (narrow == kWide ? kWide : 2 * narrow))};
    case OperationKind::kGelu: return {elements * 2 * narrow, elements * 3 * narrow};
    // Its gradient takes the logits' place at once.
    case OperationKind::kLoss: return {elements * 2 * narrow, 0};
    // Rows, then rows and positions; the gradient is added to the table's, then over samples.
    case OperationKind::kEmbedding:
      return {elements * 4 * kWide, (2 * elements + 2 * table) * kWide};
    default: return {};
  }
}

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kNorm: return "sum and normalisation";
    case OperationKind::kGelu: return "bias and GELU";
    case OperationKind::kLoss: return "cross entropy";
    case OperationKind::kEmbedding: return "embedding and positions";
    default: return "";
  }
}

/// All passes of a step, and their calls in its order.
class Step {
 public:
  Step(const plan::Plan& plan) : plan_(plan), narrow_(is_bf16() ? 2 : 4) {
    add_operations();
    if (is_bf16() && plan_.kernels.weight_gradient == base::WeightGradient::kRounded)
      add_widening();
    add_update();
    add_limit();
  }

  const std::vector<Pass>& passes() const { return passes_; }

  train::Round round() const {
    return [this](std::vector<double>& seconds) {
      for (const Call& one : calls_) train::add_seconds(seconds[one.pass], one.run);
    };
  }

 private:
  bool is_bf16() const { return plan_.kernels.precision == base::Precision::kBFloat16; }

  size_t add_pass(std::string name, double calls, int64_t bytes) {
    passes_.push_back({std::move(name), std::llround(calls), bytes});
    return passes_.size() - 1;
  }

  void add_operations() {
    std::vector<Call> backwards;
    for (const plan::Operation& one : plan::operations_of(plan_.model, plan_.micro_batch)) {
      if (one.kind == OperationKind::kProduct) products_.push_back(one);
      const Moved moved = moved_by(one, narrow_);
      if (moved.forward == 0) continue;
      const std::string name(name_of(one.kind));
      const size_t forward = add_pass(name + ", forward", one.count, moved.forward);
      const size_t backward = add_pass(name + ", backward", one.count, moved.backward);
      for (int64_t i = 0; i < passes_[forward].calls; ++i) {
        const train::OperationCall call = train::own_call(one, plan_.kernels)();
        calls_.push_back({forward, call.begin});
        backwards.push_back({backward, call.end});
      }
    }
    calls_.insert(calls_.end(), backwards.rbegin(), backwards.rend());
  }

  /// Behind each product, where that rounds.
  void add_widening() {
    const size_t copy = add_pass("weight gradients out of bf16", 1, 0);
    for (const plan::Operation& one : products_) {
      for (int64_t i = 0; i < std::llround(one.count); ++i) {
        const at::Tensor wide = at::ones({one.columns, one.inner});
        const at::Tensor narrow = wide.to(at::kBFloat16);
        calls_.push_back({copy, [wide, narrow] { wide.copy_(narrow); }});
        passes_[copy].bytes += wide.numel() * (4 + 2);
      }
    }
  }

  /// Memory for the parameters that products take in bf16, by parameter; undefined: no product takes it.
  std::vector<at::Tensor> rounded_of(const std::vector<int64_t>& sizes) const {
    std::map<int64_t, int64_t> left;
    for (const plan::Operation& one : products_)
      left[one.columns * one.inner] += std::llround(one.count);
    std::vector<at::Tensor> rounded;
    for (const int64_t size : sizes) {
      const bool is_taken = is_bf16() && left[size]-- > 0;
      rounded.push_back(is_taken ? at::empty({size}, at::kBFloat16) : at::Tensor());
    }
    return rounded;
  }

  void add_update() {
    const std::vector<int64_t> sizes = plan_.model.parameter_sizes();
    const layout::FlatLayout flat =
        plan::gradient_buckets(sizes, plan_.config.comm.bucket_bytes).flat;
    std::vector<parallel::NamedParameter> parameters;
    for (const int64_t size : sizes) {
      parameters.push_back({fmt::format("parameter {}", parameters.size()), at::zeros({size})});
    }
    const at::Tensor gradients = at::full({flat.count}, 1e-3);
    const std::shared_ptr<parallel::FlatOptimizer> optimizer = train::optimizer_of(plan_)(
        parallel::whole_part(parameters, flat, at::zeros({flat.count}), gradients,
                             parallel::decay_matrices(plan_.config.train.weight_decay)),
        {});
    calls_.push_back({add_pass("norm of gradients", 1, 4 * flat.count),
                      [gradients, flat] { (void)parallel::grad_norm(gradients, flat); }});
    const std::vector<at::Tensor> rounded = rounded_of(sizes);
    int64_t bytes = kBytesOfUpdate * flat.count;
    for (const at::Tensor& one : rounded)
      bytes += one.defined() ? static_cast<int64_t>(one.nbytes()) : 0;
    calls_.push_back({add_pass(is_bf16() ? "AdamW, and weights in bf16" : "AdamW", 1, bytes),
                      [optimizer, rounded] {
                        optimizer->round_into(rounded);
                        optimizer->step(1e-6, 2);
                      }});
  }

  /// As `hanji bench` measures its limit: memory that is read is written, and nothing else is.
  void add_limit() {
    constexpr int64_t kElements = int64_t{1} << 25;
    const at::Tensor memory = at::ones({kElements});
    calls_.push_back(
        {add_pass("update of 128 MiB", 1, 2 * 4 * kElements), [memory] { memory.add_(1); }});
  }

  /// Parameter, gradient and both moments are read, and all but the gradient written.
  static constexpr int64_t kBytesOfUpdate = 7 * 4;

  const plan::Plan& plan_;
  int64_t narrow_;
  std::vector<plan::Operation> products_;
  std::vector<Pass> passes_;
  std::vector<Call> calls_;
};

void print_passes(const Options& options, std::string_view dtype) {
  const plan::Plan plan = plan_for(options, dtype);
  const compute::AppliedForAWhile kernels(plan.kernels, 1);
  const Step step(plan);
  const std::vector<double> seconds = train::time_with_busy_ranks(
      1, options.seconds, step.passes().size(), [&] { return step.round(); });
  const double rate = static_cast<double>(step.passes().back().bytes) / seconds.back();
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Pass& one = step.passes()[i];
    const auto bytes = static_cast<double>(one.calls * one.bytes);
    if (options.json) {
      std::cout << nlohmann::json{{"question", "pass"},
                                  {"dtype", dtype},
                                  {"pass", one.name},
                                  {"calls", one.calls},
                                  {"bytes", bytes},
                                  {"seconds", seconds[i]},
                                  {"memory_seconds", bytes / rate},
                                  {"memory_bytes_per_second", rate}}
                << std::endl;
      continue;
    }
    fmt::print("{:8} {:36} {:3} calls {:8.2f} MB {:8.3f} ms, at the rate of memory {:8.3f} ms\n",
               dtype, one.name, one.calls, bytes / 1e6, seconds[i] * 1e3, bytes / rate * 1e3);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Passes over memory of a step");
  Options options;
  bool smoke = false;
  app.add_option("--preset", options.preset);
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
  app.add_flag("--smoke", smoke);
  app.add_flag("--json", options.json, "one JSON object per row and nothing else");
  CLI11_PARSE(app, argc, argv);
  if (smoke) options = {.preset = "nano", .seconds = 0.05, .json = options.json};
  compute::keep_freed_memory();
  for (const std::string_view dtype : {"float32", "bf16"}) print_passes(options, dtype);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
