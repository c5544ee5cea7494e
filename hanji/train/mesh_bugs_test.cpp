// Mistakes where several axes meet: verify finds each on a mesh of three, and names tensor and axis.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "hanji/checkpoint/folder.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/data/text.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/test_plan.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/state.h"
#include "hanji/train/test_dataset.h"
#include "hanji/train/test_verified.h"

namespace hanji::train {
namespace {

constexpr int kMeshBlocks = 2;

/// A GPT of four layers on dp 2, pp 2 and tp 2, whose stages gather their parameters, if asked for.
plan::Plan planned_mesh(bool gathers) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(bytes_of_text().facts());
  plan::Config& config = inputs.config;
  config.run.ranks = 8;
  config.mesh.pp = config.mesh.tp = 2;
  config.model.layers = 4;
  config.model.dropout = 0.1;
  if (gathers) {
    config.parallel.data = plan::Sharding::kZero3;
    config.parallel.share_memory = false;
  }
  config.train.bits = plan::Bits::kStable;
  config.train.cuts.features = kMeshBlocks;
  config.train.steps = 2;
  config.train.global_batch = 4;
  config.train.warmup_steps = 0;
  config.train.clip = 0.1;  // below the norm, so that every update has it
  config.train.evaluate_batches = 1;
  inputs.model = count_facts(config, Workload{bytes_of_text()});
  return plan::make_plan(inputs).or_throw();
}

/// One mistake of a job's step, or of what stands around it. Of a job without the axis it changes nothing:
/// that is how verify finds the axis.
struct MeshBug {
  std::string name;
  bool gathers = false;
  bool saves = false;  ///< The job is saved after its first step and goes on from what was saved.
  std::function<void(Job&)> at_start = [](Job&) {};
  std::function<void(Job&)> before_update = [](Job&) {};
  std::function<void(Job&)> before_save = [](Job&) {};
  std::function<void(const Job&, plan::TrainConfig&)> configure = [](const Job&,
                                                                     plan::TrainConfig&) {};
};

bool is_cut(const Job& job, std::string_view name) {
  return layout::placement_of(job.model->cut().placements, name).or_throw().is_cut();
}

/// What every rank that cuts the model has in full is added up over them once more.
void add_up_what_is_whole(Job& job) {
  if (!job.cut) return;
  const auto gradients = job.strategy->gradients();
  const auto& parameters = job.strategy->parameters();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined() && !is_cut(job, parameters[i].name)) {
      at::Tensor(gradients[i]).mul_(job.cut->size());
    }
  }
}

/// Each stage takes the norm of its own gradients, counted by blocks as that of all.
void count_own_stage_alone(Job& job) {
  if (!job.stages) return;
  parallel::tensor::NormSharers own;
  own.add_up = [](at::Tensor&) {};
  for (const auto& one : job.strategy->parameters()) {
    own.counted.push_back(job.pipeline.stages().first_rank_of(one.tensor, *job.model) ==
                          job.stages->rank());
  }
  const auto axis = job.cut ? parallel::tensor::Axis(*job.cut) : parallel::tensor::Axis();
  job.block_norm.emplace(job.strategy->parameters(), job.model->cut(), axis.in_blocks(kMeshBlocks),
                         std::move(own));
}

/// The last layer of each stage reads what was gathered in the first step.
void keep_first_gathered(Job& job) {
  if (!job.stages || job.data.size() == 1) return;
  const int64_t last = job.pipeline.stages().layers[job.stages->rank()].end - 1;
  std::vector<at::Tensor> weights = job.model->layer_parameters(last);
  const auto before = std::make_shared<std::vector<at::Tensor>>();
  job.scopes.push_back([=](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    if (layer != last) return run(std::move(flow));
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (before->size() == i) before->push_back(weights[i].detach().clone());
      weights[i].variable_data().copy_(before->at(i));  // which autograd is not told of
    }
    const at::AutoGradMode with_grad(true);
    return run(std::move(flow));
  });
}

/// What the backward of a stage's last micro-batch adds comes too late on data coordinate 1.
void leave_before_last_backward(Job& job) {
  if (job.data.rank() != 1 || !job.stages || job.stages->rank() != 1) return;
  constexpr int64_t kBackwards = 2;  // of a rank in a step
  for (const auto& one : job.strategy->parameters()) {
    const auto count = std::make_shared<int64_t>(0);
    one.tensor.register_hook([count](const at::Tensor& gradient) {
      return ++*count % kBackwards == 0 ? at::zeros_like(gradient) : gradient;
    });
  }
}

/// Of a cut tensor both halves are then the first one.
void write_one_half_twice(Job& job) {
  if (!job.cut) return;
  const JobView view = view_of(job);
  for (const std::vector<StateTensor>* tensors : {&view.parameters, &view.optimizer}) {
    for (const StateTensor& one : *tensors) {
      if (!one.placement.is_cut()) continue;
      at::Tensor values = one.tensor;
      comm::broadcast(values, 0, *job.cut, {.label = "half"}).wait();
    }
  }
}

std::vector<MeshBug> mesh_bugs() {
  return {{.name = "gradients that are whole are summed over tp",
           .before_update = add_up_what_is_whole},
          {.name = "each stage clips by the norm of its own gradients",
           .at_start = count_own_stage_alone},
          {.name = "a stage of sharded parameters reads what it gathered before the update",
           .gathers = true,
           .at_start = keep_first_gathered},
          {.name = "a stage's gradients leave before its last micro-batch",
           .at_start = leave_before_last_backward},
          {.name = "random numbers are keyed by rank",
           .configure = [](const Job& job,
                           plan::TrainConfig& train) { train.seed += job.data.rank(); }},
          {.name = "a checkpoint has one tp rank's half of a tensor twice",
           .saves = true,
           .before_save = write_one_half_twice}};
}

/// Saved by all ranks, and read by each.
void go_on_from_saved(Job& job, const std::filesystem::path& folder) {
  const checkpoint::State state = state_to_save(job);
  const OwnState own = own_state(job);
  checkpoint::SaveOptions options{.folder = folder, .copy_bytes = 1000};
  options.writer.num_parts = own.num_parts;
  if (job.group.rank() == 0) {
    base::throw_if_error(checkpoint::begin_checkpoint(options, 1, {}));
  }
  comm::barrier(job.group, {.label = "begun"});
  if (own.part) {
    options.writer.part = *own.part;
    base::throw_if_error(checkpoint::save_checkpoint(options, state, {.step = 1}));
  }
  comm::barrier(job.group, {.label = "saved"});
  EXPECT_EQ(restore(job, folder / checkpoint::folder_name(1)).or_throw(), 1);
  comm::barrier(job.group, {.label = "restored"});
}

StepResult step_with(const MeshBug& bug, bool is_wrong, const std::filesystem::path& folder,
                     Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
  plan::TrainConfig changed = train;
  if (is_wrong) bug.configure(job, changed);
  const std::function<void()> before_update = [&] {
    if (is_wrong) bug.before_update(job);
    inputs.before_update();
  };
  const StepResult result = run_step(job, changed,
                                     {.number = inputs.number,
                                      .micro_batches = inputs.micro_batches,
                                      .actions = inputs.actions,
                                      .memory = inputs.memory,
                                      .learning_rate = inputs.learning_rate,
                                      .before_update = before_update,
                                      .stop_signal = inputs.stop_signal});
  if (!bug.saves || inputs.number != 0) return result;
  if (is_wrong) bug.before_save(job);
  go_on_from_saved(job, folder);
  return result;
}

report::Certificate certificate_of(const MeshBug& bug, bool is_wrong) {
  const test::TemporaryFolder folder;
  ObservedParts parts;
  parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
    Job job = assemble(plan, group);
    if (is_wrong) bug.at_start(job);
    return job;
  };
  parts.step = [&](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    return step_with(bug, is_wrong, folder.path(), job, train, inputs);
  };
  return verified(planned_mesh(bug.gathers), {bytes_of_text()}, parts);
}

TEST(MeshBugs, WithoutOneRanksAreOneProcess) {
  for (const MeshBug& job : {MeshBug{}, MeshBug{.gathers = true}, MeshBug{.saves = true}}) {
    const report::Certificate right = certificate_of(job, false);
    EXPECT_TRUE(right.equal()) << report::describe(right);
  }
}

TEST(MeshBugs, AreNamedByTensorAndAxisAsTheDocsSay) {
  const std::string_view docs = data::embedded_text();
  for (const MeshBug& bug : mesh_bugs()) {
    const report::Certificate wrong = certificate_of(bug, true);
    ASSERT_FALSE(wrong.equal()) << bug.name;
    const report::FirstDifference& found = *wrong.difference;
    const std::string row =
        fmt::format("| {} | step {} | {} `{}` | {} |\n", bug.name, found.step,
                    name_of(found.quantity), found.tensor, fmt::join(found.axes, ", "));
    EXPECT_NE(docs.find(row), std::string_view::npos) << row << report::describe(wrong);
  }
}

}  // namespace
}  // namespace hanji::train
