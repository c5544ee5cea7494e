// A random torch::nn module, trained by hanji::train_model: own_module_rank SEED WIDTH KEY=VALUE...
// or described: own_module_rank SEED WIDTH --describe FILE.json
// or verified: with --verify, and with --faulty by ranks of which the last has another module
#include <hanji/hanji.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "hanji/base/random.h"

namespace {

constexpr int64_t kFeatures = 24;
constexpr int64_t kClasses = 5;

/// Sums of features decide the class.
struct Points : hanji::Source {
  int64_t count(hanji::Part part) const override { return part == hanji::Part::kTrain ? 1000 : 60; }
  hanji::SampleShape shape() const override {
    return {.inputs = {kFeatures}, .dtype = torch::kFloat};
  }
  hanji::Status read(hanji::Part part, int64_t i, hanji::Batch& batch, int64_t row) const override {
    const uint64_t key = hanji::base::mix(static_cast<uint64_t>(part), static_cast<uint64_t>(i));
    auto* x = batch.inputs.mutable_data_ptr<float>() + kFeatures * row;
    float sum = 0;
    for (uint64_t f = 0; f < kFeatures; ++f) {
      x[f] = static_cast<float>(hanji::base::mix(key, f) % 2000) / 1000 - 1;
      sum += x[f];
    }
    const auto place = static_cast<int64_t>((sum + 5) / 2);
    batch.targets.mutable_data_ptr<int64_t>()[row] = std::clamp<int64_t>(place, 0, kClasses - 1);
    return {};
  }
  uint64_t checksum() const override { return 7; }
};

/// A branch that is drawn, beside the identity.
struct BranchImpl : torch::nn::Module {
  BranchImpl(int64_t width, uint64_t kind, int64_t inner, double factor)
      : kind(kind), factor(factor) {
    using namespace torch::nn;
    first = register_module("first", Linear(width, inner));
    if (kind % 3 == 0) batch_norm = register_module("batch_norm", BatchNorm1d(inner));
    if (kind % 3 == 1)
      layer_norm = register_module("layer_norm", LayerNorm(LayerNormOptions({inner})));
    dropout = register_module("dropout", Dropout(0.1));
    last = register_module("last", Linear(inner, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = first(x);
    if (kind % 3 == 0) y = batch_norm(y);
    if (kind % 3 == 1) y = layer_norm(y);
    y = last(dropout(kind % 2 == 0 ? torch::gelu(y) : torch::relu(y)));
    return factor == 1 ? x + y : x + y * factor;
  }
  uint64_t kind;
  double factor;  ///< Other than 1: a fault that no comparison of modules shows.
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d batch_norm{nullptr};
  torch::nn::LayerNorm layer_norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Branch);

hanji::Sequential random_module(uint64_t seed, int64_t width, double factor = 1) {
  std::mt19937_64 draw(seed);
  hanji::Sequential net;
  net->push_back(torch::nn::Linear(kFeatures, width));
  for (uint64_t i = 0, blocks = 3 + draw() % 3; i < blocks; ++i) {
    const auto inner = width + static_cast<int64_t>(draw() % 2 * width + draw() % 7);
    net->push_back(Branch(width, i, inner, i + 1 == blocks ? factor : 1));
  }
  net->push_back(torch::nn::Linear(width, kClasses));
  return net;
}

}  // namespace

int main(int argc, char** argv) try {
  const uint64_t seed = std::stoull(argv[1]);
  const int64_t width = std::stoll(argv[2]);
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& targets) {
    return hanji::LossSum{torch::cross_entropy_loss(output, targets, {}, at::Reduction::Sum),
                          targets.numel()};
  };
  if (std::strcmp(argv[3], "--describe") == 0) {
    const hanji::Batch sample{.inputs = torch::zeros({1, kFeatures}),
                              .targets = torch::zeros({1}, torch::kLong)};
    std::ofstream(argv[4]) << hanji::describe(random_module(seed, width), sample, loss);
    return 0;
  }
  auto world = hanji::connect();
  hanji::TrainOptions options{.assignments = {argv + 3, argv + argc}};
  options.resume = std::erase(options.assignments, "--resume") > 0;
  options.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const bool verify = std::erase(options.assignments, "--verify") > 0;
  const bool faulty = std::erase(options.assignments, "--faulty") > 0;
  const double factor = faulty && world.rank() + 1 == world.size() ? 1.001 : 1;
  const auto make = [=] { return random_module(seed, width, factor); };
  if (verify) return hanji::verify_model(world, make, loss, Points(), options).equal ? 0 : 7;
  const auto done = hanji::train_model(world, make, loss, Points(), options);
  return done.stop_signal == 0 ? 0 : 75;
} catch (const hanji::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
