// One rank of a training of an MLP of equal units, by one of our strategies, driven line by line:
//   {"steps": 2}  ->  {"losses": [...]}
// after one line when it has met the others, and one when the module is wrapped. Started by
// bench/memory.py once per rank, with torchrun's variables, or once with --spawn RANKS: then the
// ranks are copies of one process, and the first of them speaks for all.
#include <hanji/hanji.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "hanji/parallel/flat_optimizer.h"

namespace {

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(int64_t width)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) p.fill_(3e-5);
  }
  at::Tensor forward(const at::Tensor& x) { return x + at::relu(linear(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Layer);

/// 8 rows that depend on the step and the rank.
at::Tensor rows(int64_t step, const hanji::World& world, int64_t width) {
  const int64_t count = 8 * width;
  const auto index = at::arange(count, at::kDouble) + (step * world.size() + world.rank()) * count;
  return index.sin().view({8, width}).to(at::kFloat);
}

using Update = std::function<void()>;

constexpr double kLearningRate = 1e-6;

Update by_replicas(hanji::Sequential& net, const hanji::World& world) {
  auto replicas = std::make_shared<hanji::Replicas>(hanji::data_parallel(*net, world.group()));
  const at::Tensor gradients = replicas->flat_gradients();
  const std::shared_ptr flat = hanji::parallel::flat_adamw(hanji::parallel::whole_part(
      replicas->parameters(), replicas->buckets().flat, at::zeros_like(gradients), gradients,
      hanji::parallel::decay_matrices()));
  return [replicas, flat, net]() mutable {
    flat->step(kLearningRate, 1);
    net->zero_grad();
  };
}

Update by_shards(hanji::Sharded&& made) {
  auto sharded = std::make_shared<hanji::Sharded>(std::move(made));
  const std::shared_ptr flat = hanji::parallel::optimizer_of_parts(
      [](hanji::parallel::FlatPart part, const hanji::parallel::SumOverParts&) {
        return hanji::parallel::flat_adamw(std::move(part));
      },
      sharded->flat_parts());
  return [sharded, flat] {
    sharded->step([&] { flat->step(kLearningRate, 1); });
    for (const at::Tensor& parameter : sharded->parameters()) parameter.mutable_grad().reset();
  };
}

struct Job {
  std::string strategy;
  int64_t layers = 0, width = 0;
  int spawned = 0;  ///< Ranks that are copies of one process; 0: this process is one rank.
};

hanji::Sequential build(const Job& job) {
  hanji::Sequential net;
  for (int64_t i = 0; i < job.layers; ++i) net->push_back(Layer(job.width));
  return net;
}

/// A module that is to be trained, and what to do after each backward().
struct Training {
  hanji::Sequential net;
  Update update;
};

Training start(const Job& job, const hanji::World& world) {
  hanji::FullyShardOptions options;
  options.sharding.share_memory = job.strategy != "gathered";
  if (job.strategy == "deferred") {
    auto built = hanji::deferred([&] { return build(job); });
    return {built.module, by_shards(hanji::fully_shard(built, world.group(), options))};
  }
  hanji::Sequential net = build(job);
  if (job.strategy == "ddp") return {net, by_replicas(net, world)};
  if (job.strategy == "zero1") {
    return {net, by_shards(hanji::shard_optimizer(*net, world.group()))};
  }
  return {net, by_shards(hanji::fully_shard(*net, world.group(), options))};
}

/// The next line's steps; 0: there are no more.
int64_t read_steps(const hanji::World& world) {
  at::Tensor steps = at::zeros({1}, at::kLong);
  std::string line;
  if (world.rank() == 0 && std::getline(std::cin, line)) {
    steps[0] = nlohmann::json::parse(line).at("steps").get<int64_t>();
  }
  hanji::comm::broadcast(steps, 0, world.group()).wait();
  return steps.item<int64_t>();
}

void run(const Job& job, const hanji::World& world) {
  const auto say = [&](const nlohmann::json& line) {
    if (job.spawned == 0 || world.rank() == 0) std::cout << line << std::endl;
  };
  at::set_num_threads(1);
  say({{"at", "start"}});
  auto [net, update] = start(job, world);
  say({{"at", "wrapped"}});
  int64_t step = 0;
  while (const int64_t steps = read_steps(world)) {
    nlohmann::json losses = nlohmann::json::array();
    for (const int64_t end = step + steps; step < end; ++step) {
      const at::Tensor loss = net->forward(rows(step, world, job.width)).square().mean();
      loss.backward();
      update();
      at::Tensor total = loss.detach().to(at::kDouble).view({1});
      hanji::comm::all_reduce(total, world.group()).wait();
      losses.push_back(total.item<double>() / world.size());
    }
    say({{"losses", losses}});
  }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("One rank of bench/memory");
  Job job;
  app.add_option("--strategy", job.strategy)
      ->required()
      ->check(CLI::IsMember({"ddp", "zero1", "zero3", "gathered", "deferred"}));
  app.add_option("--layers", job.layers)->required();
  app.add_option("--width", job.width)->required();
  app.add_option("--spawn", job.spawned);
  CLI11_PARSE(app, argc, argv);
  if (job.spawned == 0) {
    run(job, hanji::connect());
  } else {
    hanji::spawn(job.spawned, [&](hanji::World& world) { run(job, world); });
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
