// A model of which every rank keeps a share: parameters, gradients and AdamW's moments. The blocks
// are units, whole only while they compute; the model is an ordinary one otherwise.
//
//   07_fully_shard          hanji run --ranks 2 07_fully_shard          torchrun, mpirun, srun
#include <hanji/hanji.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <cstdio>

struct BlockImpl : torch::nn::Module {
  torch::nn::Linear widen = register_module("widen", torch::nn::Linear(64, 256));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(256, 64));
  torch::Tensor forward(const torch::Tensor& x) { return x + narrow(torch::gelu(widen(x))); }
};
TORCH_MODULE(Block);

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::ModuleList blocks =
      register_module("blocks", torch::nn::ModuleList(Block(), Block(), Block(), Block()));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(64, 1));

  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    for (const auto& block : *blocks) x = hanji::unit(*block->as<Block>())(x);
    return last(x);
  }
};

int main() {
  auto world = hanji::connect();
  torch::manual_seed(1);
  Net net;
  auto sharded =
      hanji::fully_shard(net, world.group(), {.units = hanji::units_of_type<BlockImpl>()});
  torch::optim::AdamW optimizer(sharded.parameters(), 3e-3);  // of this rank's shards
  if (world.rank() == 0) std::printf("%s", hanji::describe(sharded).c_str());

  double loss_now = 1;
  for (int step = 0; step < 200; ++step) {
    torch::manual_seed(1000 * step + world.rank());  // every rank its own samples
    const auto x = torch::rand({64, 2}) * 2 - 1;
    const auto loss = torch::mse_loss(hanji::unit(net)(x).squeeze(1), x.prod(1));
    optimizer.zero_grad();
    loss.backward();
    sharded.clip_grad_norm(1.0);
    sharded.step(optimizer);
    loss_now = loss.item<double>();
    if (world.rank() == 0 && step % 50 == 49) std::printf("step %d: %.5f\n", step + 1, loss_now);
  }
  const auto full = sharded.full_parameters();  // on every rank, until the end of the scope
  const torch::NoGradGuard no_grad;
  const auto product = net.forward(torch::tensor({{.5F, -.5F}})).item<double>();
  std::printf("rank %d: 0.5 * -0.5 = %.3f\n", world.rank(), product);
  return loss_now < 0.01 && std::abs(product + 0.25) < 0.1 ? 0 : 1;
}
