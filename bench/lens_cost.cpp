// lens_cost [--smoke]: what does an observer cost a training step that sees every operation?
//
// Steps (forward, backward, AdamW) of two models of the preset `baby`, hanji's own GPT and one of
// torch::nn's modules, on one sequence of 64 tokens and one thread: short, so that an operation's price
// weighs more than in practice. Each pair is a step with an empty observer and one without; the order
// of a pair alternates. Before them, the time and memory to build 10^10 parameters
// without memory.
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string_view>

#include "hanji/base/clock.h"
#include "hanji/lens/deferred.h"
#include "hanji/lens/observer.h"
#include "hanji/models/gpt.h"
#include "hanji/report/statistics.h"

using namespace hanji;

namespace {

constexpr int64_t kBatch = 1, kLength = 64, kWidth = 384, kVocabulary = 256;

double seconds_of(const std::function<void()>& run) {
  const int64_t start = base::now_ns();
  run();
  return static_cast<double>(base::now_ns() - start) * 1e-9;
}

struct Count : lens::Observer {
  int64_t operations = 0;
  void before(const lens::Operation&) override { ++operations; }
};

struct PlainImpl : torch::nn::Module {
  PlainImpl() {
    const torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(kWidth, 6)
            .dim_feedforward(4 * kWidth)
            .dropout(0));
    blocks = register_module("blocks", torch::nn::TransformerEncoder(layer, 6));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    return head(blocks(embedding(tokens).transpose(0, 1)).transpose(0, 1));
  }
  torch::nn::Embedding embedding =
      register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
  torch::nn::TransformerEncoder blocks{nullptr};
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kWidth, kVocabulary));
};

void compare(const char* model, torch::nn::Module& module,
             const std::function<at::Tensor(const at::Tensor&)>& forward, int pairs) {
  torch::optim::AdamW optimizer(module.parameters(), 1e-4);
  const auto tokens =
      (at::arange(kBatch * kLength) * 7).remainder(kVocabulary).view({kBatch, kLength});
  at::Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(forward(tokens).view({-1, kVocabulary}),
                                                tokens.reshape({-1}));
    loss.backward();
    optimizer.step();
  };
  Count count;
  const auto seen = [&] {
    const lens::Scope scope(count);
    step();
  };
  step();
  seen();
  const int64_t operations = count.operations;
  if (operations < 100) throw std::runtime_error("the observer saw hardly any operation");
  std::vector<double> with, without, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool first = pair % 2 == 0;
    double a = first ? seconds_of(seen) : 0;
    const double b = seconds_of(step);
    if (!first) a = seconds_of(seen);
    with.push_back(a);
    without.push_back(b);
    ratios.push_back(a / b);
  }
  if (!loss.isfinite().item<bool>()) throw std::runtime_error("a step went wrong");
  const auto interval = report::median_interval(ratios);
  fmt::print(
      "{{\"question\": \"lens_cost\", \"model\": \"{}\", \"operations\": {}, \"seconds_seen\": "
      "{:.4g}, \"seconds_unseen\": {:.4g}, \"ratio_median\": {:.4f}, \"ratio_interval_95\": "
      "[{:.4f}, "
      "{:.4f}], \"pairs\": {}, \"limit\": 1.02}}\n",
      model, operations, report::median(with), report::median(without), report::median(ratios),
      interval.low, interval.high, pairs);
  std::fflush(stdout);
}

/// The smallest operation there is, where an observer costs most.
void small_operations(int pairs) {
  const at::NoGradGuard no_grad;
  const auto x = at::ones({4});
  constexpr int kCalls = 20000;
  const auto calls = [&] {
    for (int i = 0; i < kCalls; ++i) at::add(x, x);
  };
  Count count;
  const auto seen = [&] {
    const lens::Scope scope(count);
    calls();
  };
  calls();
  std::vector<double> added, without;
  for (int pair = 0; pair < pairs; ++pair) {
    const double b = seconds_of(calls);
    const double a = seconds_of(seen);
    without.push_back(b / kCalls);
    added.push_back((a - b) / kCalls);
  }
  if (count.operations != int64_t{pairs} * kCalls) throw std::runtime_error("not all seen");
  const auto interval = report::median_interval(added);
  fmt::print(
      "{{\"question\": \"lens_cost\", \"model\": \"add of 4 elements\", \"seconds_unseen\": "
      "{:.3g}, \"seconds_added\": {:.3g}, \"interval_95\": [{:.3g}, {:.3g}]}}\n",
      report::median(without), report::median(added), interval.low, interval.high);
}

int64_t most_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

void construct(const char* model, const std::function<int64_t()>& build) {
  int64_t parameters = 0;
  const double seconds = seconds_of([&] { parameters = build(); });
  fmt::print(
      "{{\"question\": \"deferred\", \"model\": \"{}\", \"parameters\": {}, \"seconds\": {:.3g}, "
      "\"most_memory_bytes\": {}, \"limit_seconds\": 2, \"limit_bytes\": 500000000}}\n",
      model, parameters, seconds, most_memory_bytes());
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  at::set_num_threads(1);
  construct("Linear(100000, 100000)", [] {
    return count_parameters(
        *lens::deferred([] { return torch::nn::Linear(100'000, 100'000); }).module);
  });
  construct("TransformerEncoder, 50 layers of 4096", [] {
    return count_parameters(
        *lens::deferred([] {
           const auto options =
               torch::nn::TransformerEncoderLayerOptions(4096, 32).dim_feedforward(4 * 4096);
           return torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(options, 50));
         }).module);
  });
  const int pairs = smoke ? 2 : 120;
  small_operations(pairs);
  models::GptOptions options;
  models::GptImpl gpt(options);
  compare(
      "hanji's GPT", gpt,
      [&](const at::Tensor& tokens) {
        return gpt.forward({0, gpt.num_layers()}, {}, {.inputs = tokens, .targets = tokens}).at(0);
      },
      pairs);
  PlainImpl plain;
  compare(
      "torch::nn", plain, [&](const at::Tensor& tokens) { return plain.forward(tokens); }, pairs);
}
