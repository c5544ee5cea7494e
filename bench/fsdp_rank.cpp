// One rank of a training of torch::nn's own GPT, by one of our strategies, driven line by line:
//   {"steps": 5}  ->  {"seconds": [...], "losses": [...]}
// Started by bench/fsdp.py once per rank, with torchrun's variables.
#include <hanji/hanji.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "hanji/base/clock.h"
#include "hanji/parallel/optimizer.h"

namespace {

namespace nn = torch::nn;

struct Sizes {
  int64_t layers, heads, width, block, vocabulary, batch;
};

struct AttentionImpl : nn::Module {
  AttentionImpl(int64_t width, int64_t heads)
      : c_attn(register_module("c_attn", nn::Linear(width, 3 * width))),
        c_proj(register_module("c_proj", nn::Linear(width, width))),
        heads(heads) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto B = x.size(0), T = x.size(1), C = x.size(2);
    auto parts = c_attn(x).split(C, 2);
    for (auto& part : parts) part = part.view({B, T, heads, C / heads}).transpose(1, 2);
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    return c_proj(y.transpose(1, 2).contiguous().view({B, T, C}));
  }
  nn::Linear c_attn, c_proj;
  int64_t heads;
};
TORCH_MODULE(Attention);

struct MlpImpl : nn::Module {
  explicit MlpImpl(int64_t width)
      : c_fc(register_module("c_fc", nn::Linear(width, 4 * width))),
        c_proj(register_module("c_proj", nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return c_proj(at::gelu(c_fc(x), "tanh")); }
  nn::Linear c_fc, c_proj;
};
TORCH_MODULE(Mlp);

nn::LayerNorm norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t heads)
      : ln_1(register_module("ln_1", norm(width))),
        ln_2(register_module("ln_2", norm(width))),
        attn(register_module("attn", Attention(width, heads))),
        mlp(register_module("mlp", Mlp(width))) {}
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + attn(ln_1(input));
    return x + mlp(ln_2(x));
  }
  nn::LayerNorm ln_1, ln_2;
  Attention attn;
  Mlp mlp;
};
TORCH_MODULE(Block);

struct Gpt : nn::Module {
  explicit Gpt(const Sizes& sizes) {
    auto transformer = register_module("transformer", std::make_shared<nn::Module>("transformer"));
    const auto add = [&](const char* name, auto module) {
      return transformer->register_module(name, module);
    };
    wte = add("wte", nn::Embedding(sizes.vocabulary, sizes.width));
    wpe = add("wpe", nn::Embedding(sizes.block, sizes.width));
    h = add("h", nn::ModuleList());
    for (int64_t i = 0; i < sizes.layers; ++i) h->push_back(Block(sizes.width, sizes.heads));
    ln_f = add("ln_f", norm(sizes.width));
  }
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    at::Tensor x = wte(tokens) + wpe(at::arange(tokens.size(1)));
    for (const auto& block : *h) x = hanji::unit(*block->as<Block>())(x);
    const auto logits = at::linear(ln_f(x), wte->weight);
    return nn::functional::cross_entropy(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
  }
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::ModuleList h{nullptr};
  nn::LayerNorm ln_f{nullptr};
};

/// The tokens of bench/step_peer.py: a hash of the position in the run.
std::pair<at::Tensor, at::Tensor> make_batch(int64_t step, const hanji::World& world,
                                             const Sizes& sizes) {
  const int64_t count = sizes.batch * (sizes.block + 1);
  const auto index = at::arange(count) + (step * world.size() + world.rank()) * count;
  const auto tokens = index.mul(2654435761)
                          .bitwise_and(0xFFFFFFFF)
                          .bitwise_right_shift(7)
                          .remainder(sizes.vocabulary)
                          .view({sizes.batch, sizes.block + 1});
  return {tokens.narrow(1, 0, sizes.block).contiguous(),
          tokens.narrow(1, 1, sizes.block).contiguous()};
}

/// What a strategy does around a backward.
struct Side {
  std::function<void()> zero_grad, update;
};

hanji::parallel::AdamWOptions adamw() { return {.beta2 = 0.99}; }
constexpr double kLearningRate = 1e-3, kClip = 1.0;

Side by_data_parallel(Gpt& net, const hanji::World& world) {
  auto replicas = std::make_shared<hanji::Replicas>(hanji::data_parallel(net, world.group()));
  std::vector<at::Tensor> parameters;
  for (const auto& entry : replicas->parameters()) parameters.push_back(entry.tensor);
  auto optimizer = std::make_shared<hanji::parallel::FlatAdamW>(
      parameters, replicas->buckets().flat, replicas->flat_gradients(), adamw());
  return {[&net] { net.zero_grad(); },
          [=] {
            hanji::clip_grad_norm(parameters, kClip);
            optimizer->step(kLearningRate, 1);
            (void)replicas;
          }};
}

Side by_shards(hanji::Sharded&& made) {
  auto sharded = std::make_shared<hanji::Sharded>(std::move(made));
  const auto parameters = sharded->parameters();
  auto optimizer = std::make_shared<hanji::parallel::FlatAdamW>(parameters, sharded->flat_layout(),
                                                                sharded->flat_gradients(), adamw());
  return {[=] {
            for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
          },
          [=] {
            sharded->clip_grad_norm(kClip);
            sharded->step([&] { optimizer->step(kLearningRate, 1); });
          }};
}

Side side_of(const std::string& strategy, Gpt& net, const hanji::World& world) {
  if (strategy == "ddp") return by_data_parallel(net, world);
  if (strategy == "zero1") return by_shards(hanji::shard_optimizer(net, world.group()));
  if (strategy == "zero2") {
    return by_shards(hanji::shard_optimizer(net, world.group(),
                                            {.whole_gradients = hanji::WholeGradients::kFreed}));
  }
  hanji::FullyShardOptions options{.units = hanji::units_of_type<BlockImpl>()};
  if (strategy == "lens") options.calls = hanji::UnitCalls::kLens;
  options.sharding.share_memory = strategy != "gathered";
  return by_shards(hanji::fully_shard(net, world.group(), options));
}

}  // namespace

int main(int argc, char** argv) {
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
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "fully", "lens", "gathered"}));
  app.add_option("--initial", initial)->required();
  CLI11_PARSE(app, argc, argv);

  auto world = hanji::connect();
  at::set_num_threads(1);
  at::globalContext().setFloat32MatmulPrecision("medium");
  torch::manual_seed(1);
  Gpt net(sizes);
  if (strategy == "ddp" && world.rank() == 0) {  // the first side; the others read what it wrote
    hanji::base::throw_if_error(hanji::save(initial, net));
  } else if (strategy != "ddp") {
    hanji::base::throw_if_error(hanji::load(initial, net));
  }
  const Side side = side_of(strategy, net, world);
  std::cout << nlohmann::json{{"strategy", strategy}} << std::endl;

  int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer{{"seconds", nlohmann::json::array()},
                          {"losses", nlohmann::json::array()}};
    for (int64_t left = nlohmann::json::parse(line).at("steps"); left > 0; --left, ++step) {
      const auto [tokens, targets] = make_batch(step, world, sizes);
      const int64_t start = hanji::base::now_ns();
      side.zero_grad();
      const at::Tensor loss = hanji::unit(net)(tokens, targets);
      loss.backward();
      side.update();
      at::Tensor total = loss.detach().to(at::kDouble).view({1});
      hanji::comm::all_reduce(total, world.group()).wait();
      answer["losses"].push_back(total.item<double>() / world.size());
      answer["seconds"].push_back(static_cast<double>(hanji::base::now_ns() - start) * 1e-9);
    }
    std::cout << answer << std::endl;
  }
}
