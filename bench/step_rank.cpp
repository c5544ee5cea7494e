// One rank of the step that `hanji train` takes, on made-up tokens, driven line by line:
//   {"steps": 5}  ->  {"seconds": [...], "losses": [...]}
// With "hash": true the answer has the hash of the state that the last step left, too.
// On a GPU (compute.device=cuda) the steps of a request are timed together, from an idle device to an idle device, and
// each has their mean: the host runs ahead of the device, so that a step alone has no time of its own.
// Started by bench/step.py, overlap.py, pipeline.py, stable.py, threads.py and gpu_step.py once per rank, with torchrun's variables.
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "hanji/base/clock.h"
#include "hanji/checkpoint/safetensors.h"
#include "hanji/compute/apply.h"
#include "hanji/data/loader.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/train/job.h"
#include "hanji/train/meet.h"
#include "hanji/train/prepare.h"
#include "hanji/train/state.h"
#include "hanji/train/step.h"
#include "hanji/world/connect.h"

namespace {

using namespace hanji;

/// The tokens that bench/step_peer.py makes: a hash of the position in the run.
layers::Batch make_batch(const plan::Plan& plan, int64_t step, layout::Range positions) {
  const int64_t block = plan.config.model.block;
  layers::Batch batch{at::empty({positions.size(), block}, at::kLong),
                      at::empty({positions.size(), block}, at::kLong), positions,
                      positions.size() * block};
  const int64_t first = (step * plan.config.train.global_batch + positions.begin) * (block + 1);
  const auto token = [&](int64_t i) {
    const auto index = static_cast<uint64_t>(first + i);
    return static_cast<int64_t>(((index * 2654435761u & 0xFFFFFFFFu) >> 7) %
                                plan.config.model.vocabulary);
  };
  for (int64_t b = 0; b < positions.size(); ++b) {
    for (int64_t t = 0; t < block; ++t) {
      const int64_t i = b * (block + 1) + t;
      batch.inputs.mutable_data_ptr<int64_t>()[b * block + t] = token(i);
      batch.targets.mutable_data_ptr<int64_t>()[b * block + t] = token(i + 1);
    }
  }
  return batch;
}

std::vector<layers::Batch> make_batches(const plan::Plan& plan, int64_t step, int rank) {
  std::vector<layers::Batch> batches;
  for (const layout::Range positions :
       data::cut(plan::share_of(plan, rank).samples, plan.micro_batch)) {
    batches.push_back(make_batch(plan, step, positions));
  }
  return batches;
}

plan::Plan plan_for(int ranks, std::vector<std::string> assignments) {
  plan::ConfigSources sources;
  for (std::string& assignment : assignments) sources.overrides.push_back({std::move(assignment)});
  sources.overrides.push_back({"run.ranks=" + std::to_string(ranks)});
  const plan::LoadedConfig loaded = plan::load_config(sources);
  base::throw_if_error(plan::to_status(loaded.mistakes));
  return train::prepare(loaded.config).or_throw();
}

/// What the matrix products and attention of a step of this rank take alone, by the rates of the plan.
double products_seconds(const plan::Plan& plan, int rank) {
  const auto samples = static_cast<double>(plan::share_of(plan, rank).samples.size());
  const auto& kernels = plan.kernels;
  if (kernels.gemm_flops_per_second <= 0 || kernels.attention_flops_per_second <= 0) return 0;
  const plan::ModelFacts own = plan::facts_of_rank(plan, rank);
  const double products = own.product_flops_per_sample() / kernels.gemm_flops_per_second;
  const double attention =
      own.attention_flops_per_sample() / 2 / kernels.attention_flops_per_second;
  return samples * (products + attention);
}

void save_initial(const train::Job& job, const std::string& path) {
  std::vector<checkpoint::TensorEntry> model;
  for (const auto& one : train::model_of(train::view_of(job))) {
    model.push_back({one.name, one.tensor.cpu()});
  }
  base::throw_if_error(checkpoint::write_safetensors(path, checkpoint::views_of(model).or_throw()));
}

/// Until the device has done all that was launched on it.
void finish_work_of(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9;
}

/// What a request for steps is answered with.
struct Answer {
  std::vector<double> seconds, losses;
};

/// Takes steps one after the other, each of its own batches.
class Steps {
 public:
  Steps(train::Job& job, const plan::Plan& plan, int rank)
      : job_(job), plan_(plan), rank_(rank), actions_(plan::step_actions(plan, rank)) {}

  /// Batches are made before the first of the steps.
  Answer take(int64_t count) {
    std::vector<std::vector<layers::Batch>> batches;
    for (int64_t i = 0; i < count; ++i) batches.push_back(make_batches(plan_, next_ + i, rank_));
    Answer answer;
    finish_work_of(job_.device);
    const int64_t begin = base::now_ns();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t start = base::now_ns();
      answer.losses.push_back(take_one(batches[i]));
      answer.seconds.push_back(seconds_since(start));
    }
    finish_work_of(job_.device);
    if (job_.device.is_cpu()) return answer;
    answer.seconds.assign(count, seconds_since(begin) / static_cast<double>(count));
    return answer;
  }

 private:
  double take_one(const std::vector<layers::Batch>& batches) {
    return train::run_step(job_, plan_.config.train,
                           {.number = next_++,
                            .micro_batches = batches,
                            .actions = actions_,
                            .memory = memory_,
                            .learning_rate = plan_.config.train.learning_rate,
                            .before_update = nothing_})
        .loss;
  }

  train::Job& job_;
  const plan::Plan& plan_;
  const int rank_;
  const schedule::ActionList actions_;
  const std::function<void()> nothing_ = [] {};
  train::PrivateMemory memory_;
  int64_t next_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("One rank of bench/step");
  std::vector<std::string> assignments;
  std::string initial;
  app.add_option("--set", assignments)->take_all();
  app.add_option("--save-initial", initial);
  CLI11_PARSE(app, argc, argv);

  world::World world = world::connect();
  plan::Plan plan = plan_for(world.size(), assignments);
  compute::apply(plan.kernels, plan.threads);
  const comm::Group group =
      train::training_group(world, world.group(), plan, train::take_device(world, plan));
  train::Job job = train::assemble(plan, group);
  if (!initial.empty() && world.rank() == 0) save_initial(job, initial);
  std::cout << nlohmann::json{{"kernels", plan.kernels.why},
                              {"products", base::name_of(plan.kernels.products)},
                              {"products_why", plan.kernels.products_why},
                              {"products_seconds", products_seconds(plan, world.rank())},
                              {"moves", name_of(plan.config.parallel.moves)}}
            << std::endl;

  Steps steps(job, plan, world.rank());
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::json::parse(line);
    const Answer taken = steps.take(request.at("steps"));
    nlohmann::json answer{{"seconds", taken.seconds}, {"losses", taken.losses}};
    if (request.value("hash", false)) {
      answer["state_sha256"] = train::hashes_of(job).state;
    }
    std::cout << answer << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
