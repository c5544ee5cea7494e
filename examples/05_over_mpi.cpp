// Gradients that travel by MPI, which also joins ranks of several hosts:
//
//   mpirun -n 2 05_over_mpi          srun --mpi=pmix -n 2 05_over_mpi
#include <hanji/comm/mpi/group.h>
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdio>

int main() {
  auto world = hanji::connect();
  auto group = hanji::comm::mpi::make_group(world.group());
  torch::manual_seed(world.rank() + 1);  // samples of its own; rank 0's weights win
  torch::nn::Linear net(4, 1);
  auto replicas = hanji::data_parallel(*net, group);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const auto truth = torch::tensor({1.0, -2.0, 3.0, 0.5}, torch::kFloat);
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::randn({32, 4});
    optimizer.zero_grad();
    torch::mse_loss(net->forward(x).squeeze(1), x.mv(truth)).backward();
    optimizer.step();
  }
  replicas.check_parameters();  // throws, and says where, if the replicas differ by one bit
  const double error = (net->weight.squeeze(0) - truth).abs().max().item<double>();
  if (world.rank() == 0) {
    std::printf("%d ranks by %s: largest error %.6f\n", group.size(), group.engine().data(), error);
  }
  return error < 1e-3 ? 0 : 1;
}
