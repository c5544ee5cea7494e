// A module of which one rank computes slower, on samples that a rank may read slowly, trained by hanji::train_model:
// slow_rank RANK COMPUTE_SHARE READING_MS KEY=VALUE...
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "hanji/base/clock.h"

namespace {

constexpr int64_t kFeatures = 64, kWidth = 640, kBlocks = 6, kClasses = 10;

void compute_until(int64_t end_ns) {
  while (hanji::base::now_ns() < end_ns) continue;
}

struct Points : hanji::Source {
  explicit Points(double reading_ms) : reading_ms(reading_ms) {}
  int64_t count(hanji::Part part) const override { return part == hanji::Part::kTrain ? 4000 : 64; }
  hanji::SampleShape shape() const override {
    return {.inputs = {kFeatures}, .dtype = torch::kFloat};
  }
  hanji::Status read(hanji::Part part, int64_t i, hanji::Batch& batch, int64_t row) const override {
    if (reading_ms > 0 && part == hanji::Part::kTrain) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(reading_ms));
    }
    auto* x = batch.inputs.mutable_data_ptr<float>() + kFeatures * row;
    for (int64_t f = 0; f < kFeatures; ++f) x[f] = static_cast<float>((i * 7 + f * 13) % 29) / 29;
    batch.targets.mutable_data_ptr<int64_t>()[row] = i % kClasses;
    return {};
  }
  uint64_t checksum() const override { return 11; }
  double reading_ms;
};

/// Takes 1 + share times as long as its product, forward and backward.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(double share) : share(share) {
    product = register_module("product", torch::nn::Linear(kWidth, kWidth));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t begun = hanji::base::now_ns();
    torch::Tensor y = torch::gelu(product(x));
    wait(begun);
    if (share > 0 && y.requires_grad() && x.requires_grad()) {
      auto arrived = std::make_shared<int64_t>(0);
      y.register_hook([arrived](const torch::Tensor&) { *arrived = hanji::base::now_ns(); });
      x.register_hook([this, arrived](const torch::Tensor&) { wait(*arrived); });
    }
    return y;
  }
  void wait(int64_t begun) const {
    const int64_t now = hanji::base::now_ns();
    compute_until(now + static_cast<int64_t>(share * static_cast<double>(now - begun)));
  }
  double share;
  torch::nn::Linear product{nullptr};
};
TORCH_MODULE(Block);

hanji::Sequential module_of(double share) {
  hanji::Sequential net;
  net->push_back(torch::nn::Linear(kFeatures, kWidth));
  for (int64_t i = 0; i < kBlocks; ++i) net->push_back(Block(share));
  net->push_back(torch::nn::Linear(kWidth, kClasses));
  return net;
}

}  // namespace

int main(int argc, char** argv) try {
  auto world = hanji::connect();
  const bool is_slow = world.rank() == std::stoi(argv[1]);
  const double share = is_slow ? std::stod(argv[2]) : 0,
               reading_ms = is_slow ? std::stod(argv[3]) : 0;
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& targets) {
    return hanji::LossSum{torch::cross_entropy_loss(output, targets, {}, at::Reduction::Sum),
                          targets.numel()};
  };
  const hanji::TrainOptions options{.assignments = {argv + 4, argv + argc}};
  (void)hanji::train_model(
      world, [=] { return module_of(share); }, loss, Points(reading_ms), options);
  return 0;
} catch (const hanji::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
