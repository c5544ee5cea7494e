// A rank of peers_test.py: the GPT of bench/plain_gpt.h by every strategy, in both dtypes and, from
// float32 masters, in bfloat16; from the
// parameters in FOLDER/float64.safetensors and FOLDER/float32.safetensors. Arguments: FOLDER, steps,
// layers, heads, width, block, vocabulary, batch. Rank 0 leaves FOLDER/DTYPE.STRATEGY.safetensors
// and tells the loss of every step.
#include <hanji/hanji.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/plain_gpt.h"

namespace {

using plain_gpt::Gpt;
using plain_gpt::Sizes;

constexpr double kLearningRate = 1e-3, kDecay = 0.1, kBeta1 = 0.9, kBeta2 = 0.99;

struct Job {
  std::string folder;
  int64_t steps;
  Sizes sizes;
};

/// Matrices decay, vectors do not, whole or in pieces.
torch::optim::AdamW adamw(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> matrices, vectors;
  for (const at::Tensor& one : parameters) (one.dim() >= 2 ? matrices : vectors).push_back(one);
  torch::optim::AdamWOptions options(kLearningRate);
  options.betas({kBeta1, kBeta2}).weight_decay(kDecay);
  auto plain = std::make_unique<torch::optim::AdamWOptions>(options);
  plain->weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices);
  groups.emplace_back(vectors, std::move(plain));
  return torch::optim::AdamW(groups, options);
}

/// What a strategy does after a backward, and how its parameters are whole on every rank.
struct Side {
  std::function<void()> update;
  std::function<void(const std::function<void()>&)> while_whole = [](const auto& body) { body(); };
};

Side by_replicas(Gpt& net, const hanji::World& world) {
  auto replicas = std::make_shared<hanji::Replicas>(hanji::data_parallel(net, world.group()));
  auto optimizer = std::make_shared<torch::optim::AdamW>(adamw(net.parameters()));
  return {[replicas, optimizer] {
    optimizer->step();
    optimizer->zero_grad();
  }};
}

Side by_server(Gpt& net, const hanji::World& world) {
  hanji::ParameterServerOptions options{.rule = hanji::parallel::decay_matrices(kDecay)};
  options.make_optimizer = [](hanji::parallel::FlatPart part, const auto&) {
    return hanji::parallel::flat_adamw(std::move(part), {.beta1 = kBeta1, .beta2 = kBeta2});
  };
  auto server = std::make_shared<hanji::ParameterServer>(
      hanji::parameter_server(net, world.group(), options));
  return {[server, &net] {
    server->step(kLearningRate);
    net.zero_grad();
  }};
}

Side by_shards(hanji::Sharded&& made) {
  auto sharded = std::make_shared<hanji::Sharded>(std::move(made));
  auto optimizer = std::make_shared<torch::optim::AdamW>(adamw(sharded->parameters()));
  return {[sharded, optimizer] {
            sharded->step(*optimizer);
            optimizer->zero_grad();
          },
          [sharded](const auto& body) {
            const auto whole = sharded->full_parameters();
            body();
          }};
}

Side side_of(const std::string& strategy, Gpt& net, const hanji::World& world) {
  if (strategy == "ddp") return by_replicas(net, world);
  if (strategy == "server") return by_server(net, world);
  return by_shards(plain_gpt::shard(net, world.group(), strategy));
}

void train(const Job& job, at::ScalarType dtype, const std::string& strategy,
           const hanji::World& world) {
  const std::string name = dtype == at::kDouble ? "float64" : "float32";
  Gpt net(job.sizes);
  net.to(dtype);
  hanji::base::throw_if_error(hanji::load(job.folder + "/" + name + ".safetensors", net));
  const Side side = side_of(strategy, net, world);
  std::string losses;
  for (int64_t step = 0; step < job.steps; ++step) {
    const auto [tokens, targets] =
        plain_gpt::make_batch(step, world.rank(), world.size(), job.sizes);
    const at::Tensor loss = hanji::unit(net)(tokens, targets);
    loss.backward();
    side.update();
    at::Tensor total = loss.detach().to(at::kDouble).view({1});
    hanji::comm::all_reduce(total, world.group()).wait();
    char text[32];
    std::snprintf(text, sizeof text, " %.17g", total.item<double>() / world.size());
    losses += text;
  }
  side.while_whole([&] {
    if (world.rank() != 0) return;
    hanji::base::throw_if_error(
        hanji::save(job.folder + "/" + name + "." + strategy + ".safetensors", net));
  });
  if (world.rank() == 0) {
    std::printf("%s %s losses%s\n", name.c_str(), strategy.c_str(), losses.c_str());
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 9) return 2;
  try {
    const auto world = hanji::connect();
    const auto number = [&](int i) { return std::stoll(arguments[i]); };
    const Job job{arguments[1],
                  number(2),
                  {number(3), number(4), number(5), number(6), number(7), number(8)}};
    at::set_num_threads(1);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      for (const char* strategy :
           {"ddp", "zero1", "zero2", "fully", "gathered", "lens", "server"}) {
        train(job, dtype, strategy, world);
      }
    }
    train(job, at::kFloat, "mixed", world);
  } catch (const hanji::Error& error) {
    std::printf("%s\n", error.what());
    return 6;
  }
}
