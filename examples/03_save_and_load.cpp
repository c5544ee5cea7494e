// A training that goes on where it was: save() and load() keep a module and its optimizer in one
// safetensors file. 20 steps in one go, and 10, a save, new objects, a load and 10 more, end in the
// same bits. Alone, or on ranks:
//
//   03_save_and_load [FILE]          hanji run --ranks 2 03_save_and_load
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <cstdio>
#include <filesystem>

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 1));
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
};

/// Steps [begin, end): from new parameters, or behind those that `file` holds, which it then holds.
std::vector<torch::Tensor> train(hanji::World& world, int begin, int end,
                                 const std::filesystem::path& file) {
  torch::manual_seed(7);
  Net net;
  torch::optim::AdamW optimizer(net.parameters(), 1e-2);
  // Every rank reads; only now are the parameters those of all ranks.
  if (begin > 0) hanji::base::throw_if_error(hanji::load(file, net, optimizer));
  auto replicas = hanji::data_parallel(net, world.group());
  for (int step = begin; step < end; ++step) {
    torch::manual_seed(1000 * step + world.rank());  // the same samples after a restart
    const auto x = torch::rand({64, 2}) * 2 - 1;
    optimizer.zero_grad();
    torch::mse_loss(net.forward(x).squeeze(1), x.prod(1)).backward();
    optimizer.step();
  }
  // The replicas are the same: one of them is written, and appears whole or not at all.
  if (world.rank() == 0) hanji::base::throw_if_error(hanji::save(file, net, optimizer));
  hanji::comm::barrier(world.group());
  return net.parameters();
}

int main(int argc, char** argv) {
  auto world = hanji::connect();
  const std::filesystem::path file = argc > 1 ? argv[1] : "03_save_and_load.safetensors";
  const auto in_one_go = train(world, 0, 20, file);
  train(world, 0, 10, file);
  const auto with_a_break = train(world, 10, 20, file);
  bool same = true;
  for (size_t i = 0; i < in_one_go.size(); ++i) same &= in_one_go[i].equal(with_a_break[i]);
  if (world.rank() == 0) {
    std::printf("20 steps and 10 + 10 steps: %s\n", same ? "the same bits" : "other bits");
    std::filesystem::remove(file);
  }
  return same ? 0 : 1;
}
