// A model whose layers are cut: of each pair of ranks one has half of the columns of `widen` and of
// the rows of `narrow`. Nothing in the model knows of it. Pairs train on samples of their own.
//
//   09_cut_a_module         hanji run --ranks 4 09_cut_a_module         torchrun, mpirun, srun
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
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return last(x);
  }
};

int main() {
  auto world = hanji::connect();
  const int pair = world.size() % 2 == 0 ? 2 : 1;
  torch::manual_seed(1);  // equal values on all ranks, of which each takes its part
  Net net;
  auto mesh = world.mesh({{"dp", world.size() / pair}, {"tp", pair}});        // 1
  const hanji::CutModule cut(net, mesh["tp"],                                 // 2
                             {{"blocks.*.widen", hanji::ModuleCut::kColumn},  // 3
                              {"blocks.*.narrow", hanji::ModuleCut::kRow}});  // 4
  auto replicas = hanji::data_parallel(net, mesh["dp"]);                      // 5
  torch::optim::AdamW optimizer(net.parameters(), 3e-3);

  double loss_now = 1;
  for (int step = 0; step < 200; ++step) {
    torch::manual_seed(1000 * step + mesh["dp"].rank());  // the same samples for both of a pair
    const auto x = torch::rand({64, 2}) * 2 - 1;
    const auto loss = torch::mse_loss(net.forward(x).squeeze(1), x.prod(1));
    optimizer.zero_grad();
    loss.backward();
    cut.clip_grad_norm(1.0);  // of the parts of both
    optimizer.step();
    loss_now = loss.item<double>();
    if (world.rank() == 0 && step % 50 == 49) std::printf("step %d: %.5f\n", step + 1, loss_now);
  }
  const torch::NoGradGuard no_grad;
  const auto product = net.forward(torch::tensor({{.5F, -.5F}})).item<double>();
  const auto rows = net.blocks[0]->as<Block>()->widen->weight.size(0);
  std::printf("rank %d has %ld of 256 columns: 0.5 * -0.5 = %.3f\n", world.rank(),
              static_cast<long>(rows), product);
  return loss_now < 0.01 && std::abs(product + 0.25) < 0.1 && rows == 256 / pair ? 0 : 1;
}
