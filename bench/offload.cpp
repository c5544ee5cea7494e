// offload [FOLDER] [--smoke]: what do offload and recomputation cost a training step?
//
// Steps of a transformer of torch::nn's modules (forward, backward, AdamW), one thread. Of each pair
// one step is plain and one does without some memory; which is first alternates. Then updates alone:
// AdamW with its state in memory and in a file; and steps of fully_shard() with all shards in a file.
// Before any is timed its gradients, or parameters, are compared by bits with those of the plain step.
#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/lens/kept_results.h"
#include "hanji/lens/profile.h"
#include "hanji/parallel/checkpoint_budget.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/offload/activation_store.h"
#include "hanji/parallel/offload/offloaded_optimizer.h"
#include "hanji/report/statistics.h"
#include "hanji/world/in_process.h"

using namespace hanji;

namespace {

constexpr int64_t kBatch = 1, kLength = 256, kWidth = 384, kVocabulary = 256;
constexpr size_t kBlocks = 6;

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = norm1(x).view({-1, kWidth});
    const auto heads = [&](torch::nn::Linear& of) {
      return of(inner).view({kBatch, kLength, 6, kWidth / 6}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(query), heads(key), heads(value), {}, 0.0, /*is_causal=*/true);
    const at::Tensor y = x + out(mixed.transpose(1, 2).reshape({-1, kWidth})).view(x.sizes());
    return y + down(torch::gelu(up(norm2(y).view({-1, kWidth})))).view(x.sizes());
  }
  torch::nn::LayerNorm norm1 =
      register_module("norm1", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}));
  torch::nn::LayerNorm norm2 =
      register_module("norm2", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}));
  torch::nn::Linear query = register_module("query", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear key = register_module("key", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear value = register_module("value", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
};

enum class Way { kPlain, kCheckpointed, kKeeping, kBudget, kStore, kStoreOfInputs };

struct Net : torch::nn::Module {
  Net() {
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<BlockImpl>()));
    }
  }
  at::Tensor loss(const at::Tensor& tokens, Way way) {
    at::Tensor x = embedding(tokens);
    for (size_t i = 0; i < kBlocks; ++i) {
      const auto block = [block = blocks[i]](const at::Tensor& in) { return block->forward(in); };
      if (way == Way::kPlain || way == Way::kStore) x = block(x);
      if (way == Way::kCheckpointed || way == Way::kStoreOfInputs)
        x = parallel::checkpointed(block, x);
      if (way == Way::kKeeping) x = parallel::checkpointed_keeping(lens::keep_products(), block, x);
      if (way == Way::kBudget) x = checkpoints.call(i, block, x);
    }
    return torch::nn::functional::cross_entropy(head(x).view({-1, kVocabulary}), tokens.view({-1}));
  }
  std::vector<std::shared_ptr<BlockImpl>> blocks;
  parallel::Checkpoints checkpoints;
  torch::nn::Embedding embedding =
      register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kWidth, kVocabulary));
};

double seconds_of(const std::function<void()>& run) {
  const int64_t start = base::now_ns();
  run();
  return static_cast<double>(base::now_ns() - start) * 1e-9;
}

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what + " has other bits than the plain step");
}

/// Times pairs, and prints the ratio of the second to the first.
void compare(const char* name, const std::function<void()>& plain,
             const std::function<void()>& other, int pairs, const std::string& memory) {
  std::vector<double> ratios, plains;
  plain();
  other();
  for (int i = 0; i < pairs; ++i) {
    double a = 0, b = 0;
    if (i % 2 == 0) a = seconds_of(plain);
    b = seconds_of(other);
    if (i % 2 != 0) a = seconds_of(plain);
    plains.push_back(a);
    ratios.push_back(b / a);
  }
  const auto interval = report::median_interval(ratios);
  fmt::print(
      "{{\"question\": \"offload\", \"way\": \"{}\", \"ratio_median\": {:.3f}, "
      "\"ratio_interval_95\": [{:.3f}, {:.3f}], \"seconds_plain\": {:.4g}, \"pairs\": {}, "
      "\"memory\": \"{}\"}}\n",
      name, report::median(ratios), interval.low, interval.high, report::median(plains), pairs,
      memory);
  std::fflush(stdout);
}

class Steps {
 public:
  Steps(std::filesystem::path folder, int pairs)
      : store_({.folder = std::move(folder)}), pairs_(pairs) {
    plain_ = lens::profile(net_, [&] { backward(Way::kPlain); });
    std::vector<std::string> names;
    for (size_t i = 0; i < kBlocks; ++i) names.push_back("block" + std::to_string(i));
    const int64_t input = kBatch * kLength * kWidth * 4;
    net_.checkpoints =
        parallel::checkpoints_within(plain_.kept_bytes() * 6 / 10, plain_, names, input);
    backward(Way::kPlain);
    for (const auto& p : net_.parameters()) expected_.push_back(p.grad().clone());
  }

  void run(const char* name, Way way) {
    backward(way);
    for (size_t i = 0; i < expected_.size(); ++i) {
      check(at::equal(net_.parameters()[i].grad(), expected_[i]), name);
    }
    compare(
        name, [&] { step(Way::kPlain); }, [&] { step(way); }, pairs_, memory_of(way));
  }

 private:
  void backward(Way way) {
    net_.zero_grad();
    if (way != Way::kStore && way != Way::kStoreOfInputs) {
      net_.loss(tokens_, way).backward();
      return;
    }
    const auto scope = store_.offload();
    const at::Tensor loss = net_.loss(tokens_, way);
    stored_ = store_.stored_bytes();
    loss.backward();
  }
  void step(Way way) {
    backward(way);
    optimizer_.step();
  }
  std::string memory_of(Way way) {
    const std::string all = base::format_bytes(plain_.kept_bytes());
    if (stored_ > 0) return base::format_bytes(stored_) + " on disk, plain keeps " + all;
    if (way == Way::kKeeping) return "inputs and products, plain keeps " + all;
    const auto kept = lens::profile(net_, [&] { backward(way); }).kept_bytes();
    return base::format_bytes(kept) + " kept, plain keeps " + all;
  }

  Net net_;
  parallel::ActivationStore store_;
  int pairs_;
  lens::Profile plain_;
  std::vector<at::Tensor> expected_;
  int64_t stored_ = 0;
  torch::optim::AdamW optimizer_{net_.parameters(), 0.0};
  at::Tensor tokens_ =
      (at::arange(kBatch * kLength) * 7).remainder(kVocabulary).view({kBatch, kLength});
};

void compare_updates(const std::filesystem::path& folder, int pairs, int64_t count) {
  const auto part = [&] {
    parallel::FlatPart part{at::ones({count}), at::arange(count, at::kFloat).sin(), {}};
    part.pieces = {{"all", {count}, 0, {0, count}, {1, 0.1}}};
    return part;
  };
  const parallel::FlatPart a = part(), b = part();
  const auto memory = parallel::flat_adamw(a);
  const auto file = parallel::offloaded(
      [](parallel::FlatPart of, const parallel::SumOverParts&) { return parallel::flat_adamw(of); },
      {.folder = folder}, {b});
  compare(
      "AdamW's update, state in a file", [&] { memory->step(1e-3, 1); },
      [&] { file->step(1e-3, 1); }, pairs,
      fmt::format("state {} of {}, {}", base::format_bytes(file->window_bytes()),
                  base::format_bytes(memory->state_bytes()), file->description()));
  check(at::equal(a.parameters, b.parameters), "the update");
}

/// Steps of one rank that gathers its units; with one rank that is a copy of each.
class ShardedSteps {
 public:
  /// Everything in a file of `folder`; empty: in memory.
  explicit ShardedSteps(const std::filesystem::path& folder)
      : sharded_(parallel::fully_shard(*net_, world_.group(), options(folder))) {
    const auto make = [](parallel::FlatPart of, const parallel::SumOverParts&) {
      return parallel::flat_adamw(std::move(of));
    };
    if (folder.empty()) {
      for (auto& part : sharded_.flat_parts()) optimizers_.push_back(make(part, {}));
    } else {
      auto optimizer = parallel::offloaded(make, {.folder = folder, .piece_elements = 1 << 18},
                                           sharded_.flat_parts());
      window_bytes_ = optimizer->window_bytes();
      optimizers_.push_back(std::move(optimizer));
    }
  }

  void step() {
    sharded_.zero_grad();
    net_->loss(tokens_, Way::kPlain).backward();
    sharded_.step([&] {
      for (const auto& optimizer : optimizers_) optimizer->step(1e-4, 1);
    });
  }
  std::vector<at::Tensor> values() {
    const auto full = sharded_.full_parameters();
    std::vector<at::Tensor> values;
    for (const auto& p : net_->parameters()) values.push_back(p.detach().clone());
    return values;
  }
  /// To be asked before values(), which needs the whole model.
  std::string memory() {
    int64_t state = window_bytes_;
    for (const auto& optimizer : optimizers_) {
      if (window_bytes_ == 0) state += optimizer->state_bytes();
    }
    return fmt::format("heap {}, state {}", base::format_bytes(world_.heap().peak_bytes()),
                       base::format_bytes(state)) +
           shards();
  }
  /// Of "shards: 86.7 MB in a file, 4 windows of 7.09 MB in memory; by io_uring", the windows.
  std::string shards() const {
    const std::string text = describe(sharded_);
    const size_t begin = text.find("in a file, "), end = text.find(" in memory;");
    return begin == std::string::npos ? "" : ", " + text.substr(begin + 11, end - begin - 11);
  }

 private:
  static parallel::FullyShardOptions options(const std::filesystem::path& folder) {
    parallel::FullyShardOptions options{.calls = parallel::UnitCalls::kLens,
                                        .units = parallel::units_of_type<BlockImpl>()};
    options.sharding.share_memory = false;
    if (!folder.empty()) options.sharding.offload = parallel::ShardOffload{.folder = folder};
    return options;
  }

  world::World world_ = std::move(world::make_worlds(1)[0]);
  std::shared_ptr<Net> net_ = [] {
    torch::manual_seed(1);
    return std::make_shared<Net>();
  }();
  parallel::Sharded sharded_;
  std::vector<std::unique_ptr<parallel::FlatOptimizer>> optimizers_;
  int64_t window_bytes_ = 0;
  at::Tensor tokens_ =
      (at::arange(kBatch * kLength) * 7).remainder(kVocabulary).view({kBatch, kLength});
};

void compare_shards(const std::filesystem::path& folder, int pairs) {
  ShardedSteps memory({}), file(folder);
  for (int i = 0; i < 2; ++i) {
    memory.step();
    file.step();
  }
  const std::string held = file.memory() + "; in memory " + memory.memory();
  const auto expected = memory.values(), found = file.values();
  for (size_t i = 0; i < found.size(); ++i) check(at::equal(found[i], expected[i]), "the shards");
  compare(
      "parameters, gradients and state in a file", [&] { memory.step(); }, [&] { file.step(); },
      pairs, held);
}

}  // namespace

int main(int argc, char** argv) try {
  const bool is_smoke = argc > 1 && std::string_view(argv[argc - 1]) == "--smoke";
  const std::filesystem::path folder =
      argc > 1 && argv[1][0] != '-' ? argv[1] : std::filesystem::temp_directory_path();
  const int pairs = is_smoke ? 1 : 15;
  at::set_num_threads(1);
  Steps steps(folder, pairs);
  steps.run("every block checkpointed", Way::kCheckpointed);
  steps.run("the same, products and attention kept", Way::kKeeping);
  steps.run("blocks checkpointed within 60 % of the bytes", Way::kBudget);
  steps.run("activations to a file", Way::kStore);
  steps.run("inputs of checkpointed blocks to a file", Way::kStoreOfInputs);
  compare_updates(folder, pairs, is_smoke ? 1 << 20 : 16 << 20);
  compare_shards(folder, pairs);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
