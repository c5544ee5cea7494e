// Jobs of random models, schedules, meshes, batches and delays train as one process does, in float64
// to the last sums' order.
//
// A failure prints the keys of its configuration and its number N, which runs again with
//   hanji_train_test --gtest_filter=RandomJobs.* --gtest_shuffle --gtest_random_seed=N
// and with --gtest_repeat=1000 as the first of a thousand.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "hanji/comm/before_call.h"
#include "hanji/plan/schema.h"
#include "hanji/schedule/pipeline_schedule.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

constexpr int kFixedJobs = 16;
constexpr int kMaxRanks = 8;
constexpr int kMaxDraws = 1000;
constexpr int64_t kRandomSteps = 2;

/// One process and ranks of the same job.
struct RandomJob {
  plan::Plan alone, ranks;
};

class Draws {
 public:
  explicit Draws(int number) : random_(number) {}
  int64_t from(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % (most - least + 1));
  }
  bool one_in(int64_t count) { return from(1, count) == 1; }

 private:
  std::mt19937 random_;
};

void draw_model(Draws& draws, plan::Config& config) {
  config.model.heads = draws.from(1, 3);
  config.model.width = 8 * config.model.heads;
  config.model.layers = draws.from(1, 6);
  config.model.tied = !draws.one_in(3);
  config.model.dropout = draws.one_in(2) ? 0.1 : 0;
  config.compute.recompute = draws.one_in(3);
}

/// Of so many layers.
void draw_stages(Draws& draws, int64_t layers, plan::Config& config) {
  const auto kinds = schedule::pipeline_kinds();
  config.mesh.pp = draws.from(2, 4);
  plan::PipelineConfig& pipeline = config.pipeline;
  pipeline.schedule = kinds[draws.from(0, std::ssize(kinds) - 1)];
  pipeline.micro_batches = draws.from(1, 8);
  if (stages_per_rank(pipeline.schedule, 2) != stages_per_rank(pipeline.schedule, 1)) {
    pipeline.virtual_stages = draws.from(1, 3);
  }
  const int64_t stages =
      config.mesh.pp *
      stages_per_rank(pipeline.schedule, static_cast<int>(pipeline.virtual_stages));
  if (stages > layers || draws.one_in(3)) return;
  std::set<int64_t> cut;
  while (std::ssize(cut) < stages - 1) cut.insert(draws.from(1, layers - 1));
  pipeline.cut.assign(cut.begin(), cut.end());
}

/// Ranks that cut every layer or, without stages, every sample, unevenly too.
void draw_cuts(Draws& draws, plan::Config& config) {
  if (config.mesh.pp == 1 && config.model.heads > 1 && draws.one_in(2)) {
    config.mesh.cp = draws.from(2, config.model.heads);
    return;
  }
  config.mesh.tp = draws.from(1, config.model.heads);
  config.parallel.sequence = config.mesh.tp > 1 && draws.one_in(2);
}

/// Who has what of each stage's state, and how many data coordinates.
void draw_states(Draws& draws, plan::Config& config) {
  const std::array kinds = {plan::Sharding::kReplicas, plan::Sharding::kReplicas,
                            plan::Sharding::kZero1,    plan::Sharding::kZero2,
                            plan::Sharding::kZero3,    plan::Sharding::kHybrid};
  config.parallel.data = kinds[draws.from(0, std::ssize(kinds) - 1)];
  int64_t coordinates = draws.from(1, 2);
  if (config.parallel.data == plan::Sharding::kHybrid) {
    config.mesh.dp = config.mesh.fsdp = 2;
    coordinates = 4;
  }
  config.run.ranks = coordinates * config.mesh.pp * config.mesh.cp * config.mesh.tp;
  if (coordinates == 2 && draws.one_in(2)) config.train.split = {0.25, 0.75};
}

/// Nothing if the keys that were drawn exclude each other.
std::optional<RandomJob> draw(Draws& draws, const Dataset& dataset) {
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  update_by_descent(config.train);
  draw_model(draws, config);
  config.train.steps = kRandomSteps;
  config.train.global_batch = draws.from(4, 16);
  config.comm.bucket_bytes = draws.one_in(2) ? 4096 : 1 << 20;
  config.run.ranks = 1;
  const plan::Plan alone = plan::make_plan(inputs).or_throw();

  if (!draws.one_in(4)) draw_stages(draws, std::ssize(alone.model.layers), config);
  if (draws.one_in(2)) draw_cuts(draws, config);
  draw_states(draws, config);
  if (config.run.ranks == 1 || config.run.ranks > kMaxRanks) return std::nullopt;
  inputs.model = count_facts(config, Workload{dataset});
  auto ranks = plan::make_plan(inputs);
  if (!ranks.ok()) return std::nullopt;
  return RandomJob{alone, *std::move(ranks)};
}

/// The keys that are not as a run has them without, as a file for `hanji train`.
std::string changed_keys(const plan::Config& config) {
  std::string text;
  for (const plan::Key& key : plan::schema()) {
    if (key.get(config) == key.get(plan::Config())) continue;
    text += fmt::format("{} = {}\n", key.name, format_value(key, key.get(config)));
  }
  return text;
}

/// Sleeps before some calls and layers of a rank, on some ranks longer than on others.
Tampering delays(int number) {
  const auto pause_of = [number](int rank) {
    const auto draws = std::make_shared<Draws>(1000 * number + rank);
    const int64_t longest = std::array<int64_t, 3>{0, 100, 1000}[draws->from(0, 2)];
    return [draws, longest] {
      if (!draws->one_in(4)) return;
      std::this_thread::sleep_for(std::chrono::microseconds(draws->from(0, longest)));
    };
  };
  return {.before_start =
              [=](const comm::Group& group) { comm::before_call(group, pause_of(group.rank())); },
          .at_start =
              [=](Job& job) {
                job.scopes.push_back([pause = pause_of(job.group.rank())](
                                         int64_t, layers::Flow flow, const layers::RunLayer& run) {
                  pause();
                  return run(std::move(flow));
                });
              },
          .before_update = [](Job& job) { descend(job); }};
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], kSgdDifference * expected[i]) << i;
  }
}

void expect_the_run_of_one_process(const RandomJob& job, const Dataset& dataset, int number) {
  const auto update = [](Job& one) { descend(one); };
  const JobRun alone = run_job(job.alone, dataset, {.before_update = update})[0];
  std::set<std::string> names;
  int64_t wire_bytes = 0;
  const std::vector<JobRun> runs = run_job(job.ranks, dataset, delays(number));
  for (const JobRun& one : runs) {
    EXPECT_THAT(apart(one, alone, kSgdDifference), testing::IsEmpty());
    expect_near(one.losses, alone.losses);
    expect_near(one.norms, alone.norms);
    wire_bytes += one.wire_bytes;
    for (const auto& [name, value] : one.parameters) names.insert(name);
  }
  EXPECT_EQ(names.size(), alone.parameters.size()) << "parameters that learn on no rank";
  // To descend, ranks gather what is sharded.
  if (job.ranks.config.parallel.data != plan::Sharding::kReplicas) return;
  EXPECT_EQ(runs[0].collectives, job.ranks.predicted.collectives_per_step);
  EXPECT_EQ(wire_bytes, job.ranks.predicted.wire_bytes_per_step);
}

void run_random_job(int number) {
  static const Dataset dataset = open_dataset({}, 8, plan::kAuto).or_throw();
  Draws draws(number);
  std::optional<RandomJob> job;
  for (int i = 0; !job && i < kMaxDraws; ++i) job = draw(draws, dataset);
  ASSERT_TRUE(job) << number;
  SCOPED_TRACE(fmt::format("job {}\n{}", number, changed_keys(job->ranks.config)));
  expect_the_run_of_one_process(*job, dataset, number);
}

TEST(RandomJobs, TrainAsOneProcessDoes) {
  if (GTEST_FLAG_GET(shuffle)) {
    return run_random_job(testing::UnitTest::GetInstance()->random_seed());
  }
  for (int number = 1; number <= kFixedJobs; ++number) run_random_job(number);
}

}  // namespace
}  // namespace hanji::train
