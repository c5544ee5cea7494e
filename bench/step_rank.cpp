// One rank of the step that `hanji train` takes, on made-up tokens, driven line by line:
//   {"steps": 5}  ->  {"seconds": [...], "losses": [...]}
// Started by bench/step.py and bench/overlap.py once per rank, with torchrun's variables.
#include <ATen/ops/empty.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "hanji/base/clock.h"
#include "hanji/checkpoint/safetensors.h"
#include "hanji/compute/apply.h"
#include "hanji/plan/load_config.h"
#include "hanji/train/job.h"
#include "hanji/train/kernel_choice.h"
#include "hanji/train/prepare.h"
#include "hanji/train/state.h"
#include "hanji/train/step.h"
#include "hanji/world/connect.h"

namespace {

using namespace hanji;

/// The tokens that bench/step_peer.py makes: a hash of the position.
data::Batch make_batch(const plan::Plan& plan, int64_t step, int rank) {
  const layout::Range share = plan.shares[rank].samples;
  const int64_t block = plan.model.block;
  const int64_t count = share.size() * (block + 1);
  data::Batch batch{at::empty({share.size(), block}, at::kLong),
                    at::empty({share.size(), block}, at::kLong), share};
  const auto token = [&](int64_t i) {
    const uint64_t index = i + (step * plan.ranks + rank) * count;
    return static_cast<int64_t>(((index * 2654435761u & 0xFFFFFFFFu) >> 7) % plan.model.vocabulary);
  };
  for (int64_t b = 0; b < share.size(); ++b) {
    for (int64_t t = 0; t < block; ++t) {
      const int64_t i = b * (block + 1) + t;
      batch.tokens.mutable_data_ptr<int64_t>()[b * block + t] = token(i);
      batch.targets.mutable_data_ptr<int64_t>()[b * block + t] = token(i + 1);
    }
  }
  return batch;
}

plan::Plan plan_for(int ranks, std::vector<std::string> assignments) {
  plan::ConfigSources sources;
  for (std::string& assignment : assignments) sources.overrides.push_back({std::move(assignment)});
  sources.overrides.push_back({"run.ranks=" + std::to_string(ranks)});
  const plan::LoadedConfig loaded = plan::load_config(sources);
  base::throw_if_error(plan::to_status(loaded.mistakes));
  return train::prepare(loaded.config).or_throw();
}

void save_initial(const train::Job& job, const std::string& path) {
  const auto tensors = train::tensors_of(job);
  base::throw_if_error(
      checkpoint::write_safetensors(path, checkpoint::views_of(tensors.model).or_throw()));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of bench/step");
  std::vector<std::string> assignments;
  std::string initial;
  app.add_option("--set", assignments)->take_all();
  app.add_option("--save-initial", initial);
  CLI11_PARSE(app, argc, argv);

  world::World world = world::connect();
  plan::Plan plan = plan_for(world.size(), assignments);
  compute::apply(train::to_compute(plan.kernels), 1);
  train::Job job = train::assemble(plan, world.group());
  if (!initial.empty() && world.rank() == 0) save_initial(job, initial);
  std::cout << nlohmann::json{{"kernels", plan.kernels.why}} << std::endl;

  int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer{{"seconds", nlohmann::json::array()},
                          {"losses", nlohmann::json::array()}};
    for (int64_t left = nlohmann::json::parse(line).at("steps"); left > 0; --left, ++step) {
      const data::Batch batch = make_batch(plan, step, world.rank());
      const int64_t start = base::now_ns();
      const auto result = train::run_step(job, plan.config.train,
                                          {.number = step,
                                           .micro_batches = {&batch, 1},
                                           .learning_rate = plan.config.train.learning_rate});
      answer["seconds"].push_back(static_cast<double>(base::now_ns() - start) * 1e-9);
      answer["losses"].push_back(result.loss);
    }
    std::cout << answer << std::endl;
  }
}
