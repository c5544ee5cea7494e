// A module of your own on several ranks, with torch's data set, loader and optimizer. What makes
// one process into many are the five lines that mention hanji. Any of these runs it:
//
//   02_data_parallel          hanji run --ranks 2 02_data_parallel
//   torchrun --no-python --nproc-per-node 2 02_data_parallel          mpirun, srun
#include <hanji/hanji.h>
#include <torch/torch.h>

#include <cstdio>

/// Two spirals, one inside the other: which of them is a point on?
struct Spirals : torch::data::datasets::Dataset<Spirals> {
  torch::data::Example<> get(size_t index) override {
    const double turn = 0.25 + static_cast<double>(index / 2) / kPairs * 6, side = index % 2;
    const double angle = turn + side * M_PI;
    return {torch::tensor({turn * std::cos(angle), turn * std::sin(angle)}, torch::kFloat) / 3,
            torch::tensor({side}, torch::kFloat)};
  }
  torch::optional<size_t> size() const override { return 2 * kPairs; }
  static constexpr size_t kPairs = 256;
};

struct Net : torch::nn::SequentialImpl {
  Net()
      : SequentialImpl(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                       torch::nn::ReLU(), torch::nn::Linear(64, 1)) {}
};

int main() {
  auto world = hanji::connect();
  torch::manual_seed(world.rank() + 1);  // rank 0's weights win
  Net net;
  auto replicas = hanji::data_parallel(net, world.group());
  torch::optim::AdamW optimizer(net.parameters(), 1e-2);

  hanji::Sampler sampler(world, 2 * Spirals::kPairs, /*seed=*/1);
  auto loader = torch::data::make_data_loader(Spirals().map(torch::data::transforms::Stack<>()),
                                              sampler, 64 / world.size());
  double right = 0;
  for (int epoch = 0; epoch < 60; ++epoch) {
    sampler.set_epoch(epoch);
    right = 0;
    for (auto& batch : *loader) {
      const auto logits = net.forward(batch.data);
      optimizer.zero_grad();
      torch::binary_cross_entropy_with_logits(logits, batch.target).backward();
      optimizer.step();
      right += logits.gt(0).eq(batch.target).sum().item<double>();
    }
    if (world.rank() == 0 && epoch % 20 == 19) {
      std::printf("epoch %d: %.1f %% right\n", epoch + 1, 100 * right / sampler.size());
    }
  }
  replicas.check_parameters();  // throws, and says where, if the replicas differ by one bit
  return right > 0.9 * sampler.size() ? 0 : 1;
}
