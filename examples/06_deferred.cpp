// A model too large to build first and shard later: its modules are made without memory, every rank
// computes the initial values of its own shard, and the shards put together are the whole. Then what
// a step of it costs, again without computing it. One process:
//
//   06_deferred
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
  // Ten thousand million parameters, 40 GB in fp32: a few kilobytes here.
  auto large = hanji::deferred([] { return Net(35'360); });
  const auto profile = hanji::profile(*large.module, [&] {
    large.module->forward(torch::ones({8, 35'360}, torch::kMeta)).sum().backward();
  });
  std::printf("%.2e parameters, %.2e flop forward, %.2e backward\n",
              static_cast<double>(profile.num_parameters()), profile.forward_flops(),
              profile.backward_flops());
  std::printf("%s\n", profile.table(6).c_str());

  // Any range of the flat layout, on any rank, at any time: here both halves of a small one.
  const auto small = hanji::deferred([] { return Net(100); }, {.seed = 7});
  std::vector<int64_t> sizes;
  for (const auto& parameter : small.module->parameters()) sizes.push_back(parameter.numel());
  const auto layout = hanji::layout::flat_layout(sizes);
  auto flat = torch::empty({layout.count});
  for (int rank = 0; rank < 2; ++rank) {
    const auto range = hanji::layout::shard_range(layout.count, 2, rank);
    small.initial.write_flat(layout, range, flat.slice(0, range.begin, range.end));
  }

  // Or all of it, as a module that trains.
  const auto net = small.materialise();
  const auto weight = net->second->weight.detach().flatten();
  const auto same = flat.slice(0, layout.offsets[2], layout.offsets[2] + sizes[2]).equal(weight);
  std::printf("two shards and the whole: %s\n", same ? "the same bits" : "other bits");
  return same ? 0 : 1;
}
