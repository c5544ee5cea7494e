// A model too large to build first and shard later: its modules are made without memory, what a step
// of it costs is told without computing it, and every rank computes the initial values of its own
// shards, which are those of one process.
//
//   06_deferred             hanji run --ranks 2 06_deferred             torchrun, mpirun, srun
#include <hanji/hanji.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdio>

/// An ordinary module; nothing in it knows of hanji.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width) {
    first = register_module("first", torch::nn::Linear(width, 4 * width));
    second = register_module("second", torch::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

int main() {
  auto world = hanji::connect();
  // Ten thousand million parameters, 40 GB in fp32: a few kilobytes here.
  auto large = hanji::deferred([] { return Net(35'360); });
  const auto profile = hanji::profile(*large.module, [&] {
    large.module->forward(torch::ones({8, 35'360}, torch::kMeta)).sum().backward();
  });
  if (world.rank() == 0) {
    std::printf("%.2e parameters, %.2e flop forward, %.2e backward\n%s\n",
                static_cast<double>(profile.num_parameters()), profile.forward_flops(),
                profile.backward_flops(), profile.table(6).c_str());
  }

  // Sharded without ever having been whole; the linear layers are units, found as they compute.
  auto small = hanji::deferred([] { return Net(100); }, {.seed = 7});
  auto sharded = hanji::fully_shard(small, world.group(), {.calls = hanji::UnitCalls::kLens});
  const auto full = sharded.full_parameters();  // to look at it, on every rank

  // The same construction, all of it in memory.
  const auto net = hanji::deferred([] { return Net(100); }, {.seed = 7}).materialise();
  const bool same = small.module->second->weight.equal(net->second->weight);
  std::printf("rank %d: shards and the whole: %s\n", world.rank(),
              same ? "the same bits" : "other bits");
  return same ? 0 : 1;
}
