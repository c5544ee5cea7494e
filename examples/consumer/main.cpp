// A one-process program becomes a distributed one: the lines that mention hanji are all it takes.
// Run it alone, or with  hanji run --ranks 2 ./consumer,  torchrun, mpirun or srun.
#include <hanji/hanji.h>
#include <torch/torch.h>

#include <cstdio>

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(2, 32));
    second = register_module("second", torch::nn::Linear(32, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

int main() {
  auto world = hanji::connect();
  auto mesh = world.mesh({{"dp", world.size()}});
  torch::manual_seed(world.rank());  // other data on every rank; rank 0's weights win
  Net net;
  auto replicas = hanji::data_parallel(net, mesh["dp"]);
  torch::optim::AdamW optimizer(net.parameters(), 1e-2);
  for (int step = 0; step < 300; ++step) {
    const auto x = torch::rand({64, 2}) * 2 - 1;
    const auto y = x.select(1, 0) * x.select(1, 1);
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net.forward(x).squeeze(1), y);
    loss.backward();  // gradients are averaged over the ranks when it returns
    optimizer.step();
    if (world.rank() == 0 && step % 100 == 99) {
      std::printf("step %d  loss %.5f\n", step + 1, loss.item<double>());
    }
  }
}
