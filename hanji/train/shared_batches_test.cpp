// One of the ranks that see the same samples reads them, and the others map its memory.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "hanji/comm/barrier.h"
#include "hanji/data/batch.h"
#include "hanji/data/source.h"
#include "hanji/plan/load_config.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/shared_batches.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

/// Counts the samples that are read.
class WatchedSource final : public data::Source {
 public:
  explicit WatchedSource(
      std::shared_ptr<const data::Source> samples, std::function<void()> before_read = [] {})
      : samples_(std::move(samples)), before_read_(std::move(before_read)) {}
  int64_t count(data::Part part) const override { return samples_->count(part); }
  data::SampleShape shape() const override { return samples_->shape(); }
  uint64_t checksum() const override { return samples_->checksum(); }
  Status read(data::Part part, int64_t index, layers::Batch& batch, int64_t row) const override {
    before_read_();
    ++num_read_;
    return samples_->read(part, index, batch, row);
  }
  int64_t num_read() const { return num_read_; }

 private:
  std::shared_ptr<const data::Source> samples_;
  std::function<void()> before_read_;
  mutable std::atomic<int64_t> num_read_ = 0;
};

struct ReadJob {
  plan::Plan plan;
  Dataset dataset;
};

ReadJob job_of(std::vector<std::string> keys) {
  std::vector<plan::Override> overrides;
  for (const char* key : {"train.steps=3", "train.evaluate_batches=2", "compute.threads=1"}) {
    keys.emplace_back(key);
  }
  for (const std::string& key : keys) overrides.push_back({key});
  const plan::Config config = plan::parse_config("", "run.toml", overrides).config;
  Dataset dataset = open_dataset(config).or_throw();
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.config = config;
  inputs.data = dataset.facts();
  inputs.kernels = {plan::Gemm::kMkl, plan::Attention::kMath};
  inputs.model = count_facts(config, Workload{dataset});
  return {plan::make_plan(inputs).or_throw(), std::move(dataset)};
}

/// A GPT on 7 samples a step, so that micro-batches differ.
ReadJob tokens_on(const std::string& ranks, const std::vector<std::string>& keys) {
  std::vector<std::string> all = {"run.ranks=" + ranks,   "model.preset=nano",  "model.layers=2",
                                  "model.width=16",       "model.heads=2",      "model.block=8",
                                  "train.global_batch=7", "train.micro_batch=2"};
  all.insert(all.end(), keys.begin(), keys.end());
  return job_of(std::move(all));
}

int64_t samples_of(const plan::Plan& plan) {
  const plan::TrainConfig& train = plan.config.train;
  return (train.steps + train.evaluate_batches) * train.global_batch;
}

void expect_each_once(ReadJob job) {
  const auto watched = std::make_shared<WatchedSource>(job.dataset.samples);
  job.dataset.samples = watched;
  run_job(job.plan, job.dataset);
  EXPECT_EQ(watched->num_read(), samples_of(job.plan)) << "steps, and one evaluation";
}

TEST(SharedBatches, ABatchStaysAsItIsWhileTheNextOneIsRead) {
  test::run_ranks(2, [](world::World& world) {
    SharedBatches shared(world.group(), {.inputs = {3}}, 2);
    ASSERT_TRUE(shared.are_shared());
    const std::array cuts = {layout::Range{0, 2}};
    std::array<layers::Batch, 2> batches;
    for (size_t turn = 0; turn < batches.size(); ++turn) {
      const auto number = static_cast<int64_t>(turn);
      shared.read(cuts, std::span(batches).subspan(turn, 1),
                  [&](layout::Range, layers::Batch& batch) { batch.inputs.fill_(number); });
      comm::barrier(world.group());
    }
    EXPECT_TRUE(batches[0].inputs.eq(0).all().item<bool>());
    EXPECT_TRUE(batches[1].inputs.eq(1).all().item<bool>());
  });
}

TEST(SharedBatches, ABatchThatIsUsedLongerThanItsReaderLendsItIsACopy) {
  const data::SampleShape shape{.inputs = {3}, .targets = {3}};
  const SharedBatches alone(std::nullopt, shape, 2);
  layers::Batch lent, taken, kept;
  data::shape_batch(shape, {4, 6}, lent);
  lent.inputs.fill_(7);
  lent.targets.fill_(8);
  alone.hand_over(lent, taken);
  EXPECT_EQ(taken.inputs.data_ptr(), lent.inputs.data_ptr());
  alone.hand_over(lent, kept, SharedBatches::Use::kLonger);
  lent.inputs.fill_(1);
  EXPECT_EQ(kept.inputs.sum().item<int64_t>(), 6 * 7);
  EXPECT_NE(kept.targets.data_ptr(), lent.targets.data_ptr());
  EXPECT_EQ(kept.positions.begin, 4);
}

TEST(SharedBatches, ASampleIsReadOnceForAllRanksOfItsDataCoordinate) {
  expect_each_once(tokens_on("2", {}));
  expect_each_once(tokens_on("2", {"mesh.tp=2"}));
  expect_each_once(tokens_on("2", {"mesh.pp=2"}));
  expect_each_once(tokens_on("2", {"mesh.pp=2", "pipeline.schedule=zbv", "train.bits=stable"}));
  expect_each_once(tokens_on("8", {"mesh.pp=2", "mesh.tp=2", "mesh.dp=2"}));
}

TEST(SharedBatches, AnImageIsDecodedOnceForAllStages) {
  for (const char* workers : {"data.workers=0", "data.workers=2"}) {
    expect_each_once(
        job_of({"run.ranks=2", "mesh.pp=2", "model.preset=resnet-tiny", workers, "model.width=4",
                "data.image_size=12", "data.image_count=1000", "train.global_batch=32"}));
  }
}

TEST(SharedBatches, ARankThatReadsLateIsNamedWithWhatItDoes) {
  ReadJob job = tokens_on("2", {"mesh.tp=2"});
  std::atomic<bool> is_over = false;
  job.dataset.samples = std::make_shared<WatchedSource>(job.dataset.samples, [&] {
    while (!is_over) std::this_thread::sleep_for(1ms);
  });
  std::string message;
  const auto body = [&](world::World& world) {
    try {
      run_rank(job.plan, job.dataset, world.group(), {});
    } catch (const Error& error) {
      if (world.rank() == 1) message = error.what();
      is_over = true;
      throw;
    }
  };
  world::ConnectOptions options;
  options.group.deadline = 3s;
  EXPECT_THROW(test::run_ranks(2, body, options), Error);
  EXPECT_THAT(message, HasSubstr("absent rank 0"));
  EXPECT_THAT(message, HasSubstr("is not waiting for anybody, is in data"));
}

TEST(SharedBatches, ASampleThatCannotBeReadEndsAllRanks) {
  ReadJob job = tokens_on("2", {"mesh.pp=2"});
  job.dataset.samples = std::make_shared<WatchedSource>(
      job.dataset.samples, [] { throw Error(base::corrupt("sample 3 of x.beton")); });
  std::string message;
  const auto body = [&](world::World& world) {
    try {
      run_rank(job.plan, job.dataset, world.group(), {});
    } catch (const Error& error) {
      if (world.rank() == 1) message = error.what();
      throw;
    }
  };
  EXPECT_THROW(test::run_ranks(2, body), Error);
  EXPECT_THAT(message, HasSubstr("rank 0"));
  EXPECT_THAT(message, HasSubstr("sample 3 of x.beton"));
}

}  // namespace
}  // namespace hanji::train
