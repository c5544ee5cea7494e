// One rank of a training of torch::nn's own GPT, by one of our strategies, driven line by line:
//   {"steps": 5}  ->  {"seconds": [...], "losses": [...]}
// Started by bench/fsdp.py once per rank, with torchrun's variables.
#include <hanji/hanji.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/plain_gpt.h"
#include "hanji/base/clock.h"
#include "hanji/compute/apply.h"
#include "hanji/compute/measure.h"
#include "hanji/parallel/flat_optimizer.h"

namespace {

using plain_gpt::Gpt;
using plain_gpt::Sizes;

/// What a strategy does around a backward.
struct Side {
  std::function<void()> zero_grad, update;
  std::function<at::Tensor(const at::Tensor&)> scale = [](const at::Tensor& loss) { return loss; };
};

hanji::parallel::AdamWOptions adamw() { return {.beta2 = 0.99}; }
constexpr double kLearningRate = 1e-3, kClip = 1.0;

/// The hook of a name; of any other an empty one, which is none.
hanji::CommunicationHook hook_of(const std::string& strategy) {
  if (strategy == "fp16") return hanji::fp16_hook();
  if (strategy == "bf16") return hanji::bf16_hook();
  if (strategy == "power_sgd") return hanji::power_sgd_hook();
  if (strategy == "top_k") return hanji::top_k_hook(0.01);
  return {};
}

Side by_data_parallel(Gpt& net, const hanji::World& world, const std::string& strategy) {
  auto replicas = std::make_shared<hanji::Replicas>(
      hanji::data_parallel(net, world.group(), {.hook = hook_of(strategy)}));
  std::vector<at::Tensor> parameters;
  for (const auto& entry : replicas->parameters()) parameters.push_back(entry.tensor);
  const at::Tensor gradients = replicas->flat_gradients();
  const std::shared_ptr optimizer = hanji::parallel::flat_adamw(
      hanji::parallel::whole_part(replicas->parameters(), replicas->buckets().flat,
                                  at::zeros_like(gradients), gradients,
                                  hanji::parallel::decay_matrices()),
      adamw());
  const auto update = [=] {
    hanji::clip_grad_norm(parameters, kClip);
    optimizer->step(kLearningRate, 1);
    (void)replicas;
  };
  const auto zero_grad = [&net] { net.zero_grad(); };
  if (strategy != "scaled") return {zero_grad, update};
  auto scaler = std::make_shared<hanji::LossScaler>(world.group());
  return {zero_grad,
          [=] {
            if (scaler->unscale_of(parameters)) update();
          },
          [scaler](const at::Tensor& loss) { return scaler->scale(loss); }};
}

Side by_shards(hanji::Sharded&& made) {
  auto sharded = std::make_shared<hanji::Sharded>(std::move(made));
  const auto parameters = sharded->parameters();
  const std::shared_ptr optimizer = hanji::parallel::optimizer_of_parts(
      [](hanji::parallel::FlatPart part, const hanji::parallel::SumOverParts&) {
        return hanji::parallel::flat_adamw(std::move(part), adamw());
      },
      sharded->flat_parts());
  return {[=] {
            for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
          },
          [=] {
            sharded->clip_grad_norm(kClip);
            sharded->step([&] { optimizer->step(kLearningRate, 1); });
          }};
}

Side side_of(const std::string& strategy, Gpt& net, const hanji::World& world) {
  constexpr std::array kSharded = {"zero1", "zero2", "fully", "lens", "gathered", "mixed"};
  if (std::ranges::find(kSharded, strategy) == kSharded.end()) {
    return by_data_parallel(net, world, strategy);
  }
  return by_shards(plain_gpt::shard(net, world.group(), strategy));
}

/// oneDNN where its products are those of float32: with matrix units for bfloat16 it takes these.
/// Every rank and every process decides alike, for the error does not depend on the moment. Where
/// medium allows these, they are taken.
hanji::compute::KernelChoice kernels_of(const Sizes& sizes, bool medium) {
  using hanji::compute::Gemm;
  hanji::compute::MeasureOptions options;
  options.shapes = {sizes.batch, sizes.block, sizes.width, sizes.heads};
  options.gemm = Gemm::kOneDnn;
  if (medium) options.products = hanji::compute::Products::kMedium;
  hanji::compute::KernelChoice kernels{.gemm = Gemm::kMkl};
  const auto found = hanji::compute::measure(options);
  if (!found.ok()) return kernels;
  kernels.gemm = Gemm::kOneDnn;
  kernels.products = found->choice.products;
  return kernels;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("One rank of bench/fsdp");
  Sizes sizes{};
  std::string strategy, initial;
  app.add_option("--layers", sizes.layers)->required();
  app.add_option("--heads", sizes.heads)->required();
  app.add_option("--width", sizes.width)->required();
  app.add_option("--block", sizes.block)->required();
  app.add_option("--vocabulary", sizes.vocabulary)->required();
  app.add_option("--batch", sizes.batch)->required();
  app.add_option("--strategy", strategy)
      ->required()
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "fully", "lens", "gathered", "mixed",
                             "scaled", "fp16", "bf16", "power_sgd", "top_k", "checkpointed"}));
  app.add_option("--initial", initial)->required();
  bool medium = false;
  app.add_flag("--medium", medium, "products of inputs rounded to bf16 where they are to be had");
  CLI11_PARSE(app, argc, argv);

  auto world = hanji::connect();
  const hanji::compute::KernelChoice kernels = kernels_of(sizes, medium);
  hanji::compute::apply(kernels, 1);
  torch::manual_seed(1);
  Gpt net(sizes, strategy == "checkpointed");
  if (strategy == "ddp" && world.rank() == 0) {  // the first side; the others read what it wrote
    hanji::base::throw_if_error(hanji::save(initial, net));
  } else if (strategy != "ddp") {
    hanji::base::throw_if_error(hanji::load(initial, net));
  }
  const Side side = side_of(strategy, net, world);
  std::cout << nlohmann::json{{"strategy", strategy},
                              {"products", hanji::base::name_of(kernels.products)}}
            << std::endl;

  int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer{{"seconds", nlohmann::json::array()},
                          {"losses", nlohmann::json::array()}};
    for (int64_t left = nlohmann::json::parse(line).at("steps"); left > 0; --left, ++step) {
      const auto [tokens, targets] = plain_gpt::make_batch(step, world.rank(), world.size(), sizes);
      const int64_t start = hanji::base::now_ns();
      side.zero_grad();
      const at::Tensor loss = hanji::unit(net)(tokens, targets);
      side.scale(loss).backward();
      side.update();
      at::Tensor total = loss.detach().to(at::kDouble).view({1});
      hanji::comm::all_reduce(total, world.group()).wait();
      answer["losses"].push_back(total.item<double>() / world.size());
      answer["seconds"].push_back(static_cast<double>(hanji::base::now_ns() - start) * 1e-9);
    }
    std::cout << answer << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
