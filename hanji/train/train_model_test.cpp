// A torch::nn module of a program, through the job, loop and files of `hanji train`.
#include "hanji/train/train_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/options/batchnorm.h>

#include <atomic>
#include <set>
#include <stdexcept>

#include "hanji/base/exception.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/compute/apply.h"
#include "hanji/data/loader.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/report/certificate.h"
#include "hanji/test/run_ranks.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/check_job.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/observe_rank.h"
#include "hanji/train/one_process.h"

namespace hanji::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;

/// Points with their products, two targets each, in float32.
class Products : public data::Source {
 public:
  int64_t count(data::Part part) const override { return part == data::Part::kTrain ? 96 : 10; }
  data::SampleShape shape() const override {
    return {.inputs = {3}, .dtype = at::kFloat, .targets = {2}, .target_dtype = at::kFloat};
  }
  Status read(data::Part part, int64_t index, layers::Batch& batch, int64_t row) const override {
    if (Status inside = check_index(part, index); !inside.ok()) return inside;
    const uint64_t key =
        base::mix(part == data::Part::kTrain ? 1 : 2, static_cast<uint64_t>(index));
    auto* x = batch.inputs.mutable_data_ptr<float>() + 3 * row;
    auto* y = batch.targets.mutable_data_ptr<float>() + 2 * row;
    for (uint64_t i = 0; i < 3; ++i) x[i] = static_cast<float>(base::mix(key, i) % 1000) / 500 - 1;
    y[0] = x[0] * x[1];
    y[1] = x[1] * x[2];
    return {};
  }
  uint64_t checksum() const override { return checksum_; }
  uint64_t checksum_ = 3;
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width) {
    inner = register_module("inner", Linear(width, width + 3));
    norm = register_module("norm", BatchNorm1d(width + 3));
    outer = register_module("outer", Linear(width + 3, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + outer(at::tanh(norm(inner(x)))); }
  Linear inner{nullptr}, outer{nullptr};
  BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Block);

parallel::Sequential make_blocks() {
  return parallel::Sequential(Linear(3, 9), Block(9), Block(9), Linear(9, 2));
}

/// Counts samples, of which each has two targets.
layers::LossSum squared_error(const at::Tensor& output, const at::Tensor& targets) {
  return {(output - targets).square().sum(), output.size(0)};
}

OwnModel blocks() {
  return {[] { return models::layers_of(make_blocks()); }, squared_error};
}

plan::Config config_of(const std::filesystem::path& out, plan::Bits bits = plan::Bits::kStable) {
  plan::Config config;
  config.run.out = out;
  config.train.steps = 4;
  config.train.bits = bits;
  config.train.global_batch = 24;
  config.train.grain = 4;
  config.train.schedule = plan::LearningRateSchedule::kConstant;
  config.train.evaluate_batches = 1;
  config.compute.threads = 1;
  config.comm.bucket_bytes = 4096;
  return config;
}

base::Json summary_of(const std::filesystem::path& out) {
  return base::parse_json(base::read_file(out / "summary.json", size_t{1} << 20).or_throw())
      .or_throw();
}

/// Trained by so many ranks; the summary.
base::Json trained(int ranks, const TrainOptions& options) {
  const Products source;
  test::run_ranks(ranks, [&](world::World& world) {
    const TrainedModel done = train_model(world, make_blocks, squared_error, source, options);
    EXPECT_TRUE(std::filesystem::exists(done.model)) << done.model;
  });
  return summary_of(options.config.run.out);
}

TEST(TrainModel, StableStateIsOneForAnyRanksAndStrategy) {
  const test::TemporaryFolder folder;
  std::string expected;
  for (const int ranks : {1, 2, 3}) {
    for (const auto data : {plan::Sharding::kReplicas, plan::Sharding::kServer,
                            plan::Sharding::kZero1, plan::Sharding::kZero3}) {
      const auto out = folder.path() / fmt::format("{}{}", ranks, name_of(data));
      TrainOptions options{.config = config_of(out)};
      options.config.parallel.data = data;
      options.config.compute.recompute = ranks == 3;
      const base::Json summary = trained(ranks, options);
      if (expected.empty()) expected = summary["state_sha256"];
      EXPECT_EQ(summary["state_sha256"], expected) << out;
      EXPECT_EQ(summary["ranks"], ranks);
    }
  }
}

/// Products of which the loss masks those of a run's second step and the whole validation.
class MaskedProducts : public Products {
 public:
  explicit MaskedProducts(const plan::TrainConfig& train) {
    const auto loader = data::Loader::create({.seed = static_cast<uint64_t>(train.seed),
                                              .num_samples = num_train(),
                                              .global_batch = train.global_batch,
                                              .share = {0, train.global_batch},
                                              .micro_batch = train.global_batch})
                            .or_throw();
    for (const data::EpochSample& one : loader.at(1, {0, train.global_batch})) {
      masked_.insert(one.index);
    }
  }
  Status read(data::Part part, int64_t index, layers::Batch& batch, int64_t row) const override {
    if (Status status = Products::read(part, index, batch, row); !status.ok()) return status;
    if (part == data::Part::kValidation || masked_.contains(index)) {
      batch.targets[row].fill_(kMasked);
    }
    return {};
  }
  static constexpr float kMasked = 7;

 private:
  std::set<int64_t> masked_;
};

layers::LossSum masked_error(const at::Tensor& output, const at::Tensor& targets) {
  const at::Tensor valid = targets.ne(MaskedProducts::kMasked);
  return {((output - targets) * valid).square().sum(), valid.sum().item<int64_t>()};
}

TEST(TrainModel, AStepWithoutAValidTargetIsLeftOutAndCountedOrEndsTheRunByName) {
  const test::TemporaryFolder folder;
  const MaskedProducts source(config_of("").train);
  std::string hash;
  for (const auto [ranks, data] :
       {std::pair(1, plan::Sharding::kReplicas), std::pair(2, plan::Sharding::kReplicas),
        std::pair(3, plan::Sharding::kZero3)}) {
    const auto out = folder.path() / fmt::format("{}{}", ranks, name_of(data));
    TrainOptions options{.config = config_of(out)};
    options.config.parallel.data = data;
    options.config.train.nan = plan::NanPolicy::kSkip;
    std::string text;
    options.write = [&](std::string_view line) { text += line; };
    test::run_ranks(ranks, [&](world::World& world) {
      train_model(world, make_blocks, masked_error, source, options);
    });
    const base::Json summary = summary_of(out);
    EXPECT_EQ(summary["steps_without_targets"], 1);
    EXPECT_EQ(summary["skipped_steps"], 1);
    EXPECT_GT(summary["train_loss"], 0);
    if (hash.empty()) hash = summary["state_sha256"];
    EXPECT_EQ(summary["state_sha256"], hash);
    EXPECT_THAT(text, AllOf(HasSubstr("step 2  warning: no target of this step is valid"),
                            HasSubstr("warning: no target of 10 validation samples is valid"),
                            HasSubstr("1 step changed nothing"), Not(HasSubstr("loss nan")),
                            Not(HasSubstr("loss -nan"))));
  }
  TrainOptions stopping{.config = config_of(folder.path() / "stops")};
  test::run_ranks(2, [&](world::World& world) {
    EXPECT_THAT([&] { train_model(world, make_blocks, masked_error, source, stopping); },
                ThrowsMessage<std::exception>(HasSubstr("no target of its 24 samples is valid")));
  });
}

/// Trains five steps and saves after each; a file is in the way of the first three checkpoints. The output.
std::string trained_past_failed_saves(int ranks, plan::Sharding data,
                                      const std::filesystem::path& out) {
  std::string text;
  TrainOptions options{.config = config_of(out)};
  options.config.train.steps = 5;
  options.config.train.log_every = 1;
  options.config.checkpoint.every = 1;
  options.config.parallel.data = data;
  options.write = [&](std::string_view line) {
    text += line;
    const std::filesystem::path folder = out / "checkpoints";
    const bool begins = line.find("step 1/5") != line.npos;
    if (begins || line.find("step 4/5") != line.npos) std::filesystem::remove_all(folder);
    if (begins) base::throw_if_error(base::write_file_atomic(folder, "in the way"));
  };
  const base::Json summary = trained(ranks, options);
  EXPECT_EQ(summary["checkpoint"]["failed_saves"], 3);
  EXPECT_EQ(summary["checkpoint"]["saves"], 2);
  return text;
}

TEST(TrainModel, ASaveThatFailsIsWarnedOfOnceByItsStepAndTheRunGoesOn) {
  const test::TemporaryFolder folder;
  for (const auto data : {plan::Sharding::kReplicas, plan::Sharding::kZero1}) {
    const std::string text =
        trained_past_failed_saves(2, data, folder.path() / std::string(name_of(data)));
    const size_t warned = text.find("step 1  warning: saving the checkpoint failed (none is there");
    EXPECT_LT(warned, text.find("step 2/5")) << text;
    EXPECT_EQ(text.find("warning: saving", warned + 30), text.npos) << text;
    EXPECT_THAT(text, HasSubstr("step 4  warning: checkpoints are saved again; 3 saves since step "
                                "1 failed"));
  }
}

TEST(TrainModel, ASavedRunGoesOnToTheSameBitsOnOtherRanks) {
  const test::TemporaryFolder folder;
  const base::Json whole = trained(1, {.config = config_of(folder.path() / "whole")});
  TrainOptions options{.config = config_of(folder.path() / "run")};
  options.config.train.steps = 2;
  trained(2, options);
  options.config.train.steps = 4;
  options.resume = true;
  options.config.parallel.data = plan::Sharding::kZero2;
  std::string told;
  options.write = [&](std::string_view text) { told += text; };
  EXPECT_EQ(trained(3, options)["state_sha256"], whole["state_sha256"]);
  EXPECT_THAT(told, AllOf(HasSubstr("behind step 2"), HasSubstr("model       module: "),
                          HasSubstr("step 4/4")));
}

TEST(TrainModel, ItsBitsAreThoseOfOneProcessThatMakesTheModelAgain) {
  const Products source;
  const Workload workload = own_workload(blocks(), source);
  for (const auto bits : {plan::Bits::kRun, plan::Bits::kStable}) {
    plan::PlanInputs inputs{.config = config_of("", bits), .data = workload.dataset.facts()};
    inputs.config.model.preset = "module";
    inputs.config.run.ranks = 2;
    inputs.config.train.micro_batch = 8;
    inputs.machine.physical_cores = inputs.machine.usable_cores = 4;
    inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
    inputs.kernels.gemm = plan::Gemm::kMkl;
    inputs.kernels.attention = plan::Attention::kMath;
    inputs.model = count_facts(inputs.config, workload);
    EXPECT_EQ(inputs.model->layers.size(), 4U);
    const plan::Plan plan = plan::make_plan(inputs).or_throw();
    compute::apply(plan.kernels, 1);
    OneProcess one(plan, workload.dataset, workload.make);
    const report::ObservedRun expected = observe(one, plan.config.train.steps, {});
    test::run_ranks(2, [&](world::World& world) {
      const ObservedParts parts{.assemble = [&](const plan::Plan& of, const comm::Group& group) {
        return assemble(of, group, workload.make);
      }};
      const auto found = observe_rank(plan, workload.dataset, world.group(), {}, parts);
      EXPECT_EQ(found.state_sha256, expected.state_sha256) << name_of(bits);
    });
  }
}

TEST(TrainModel, EveryRankThrowsAllMistakesOfTheConfiguration) {
  const test::TemporaryFolder folder;
  const Products source;
  TrainOptions options{.config = config_of(folder.path() / "run")};
  options.config.train.steps = -1;
  options.config.data.image_size = 64;
  options.config.model.heads = 2;
  EXPECT_THAT(
      [&] {
        test::run_ranks(1, [&](world::World& world) {
          train_model(world, make_blocks, squared_error, source, options);
        });
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("train.steps is -1"), HasSubstr("data.image_size"),
                                 HasSubstr("model.heads"))));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
}

TEST(TrainModel, OtherDataOrAnotherModelIsNoWayToGoOn) {
  const test::TemporaryFolder folder;
  TrainOptions options{.config = config_of(folder.path() / "run")};
  trained(1, options);
  options.config.train.steps = 8;
  options.resume = true;
  Products other;
  other.checksum_ = 4;
  const auto go_on = [&](const data::Source& source, const auto& make) {
    test::run_ranks(
        1, [&](world::World& world) { train_model(world, make, squared_error, source, options); });
  };
  EXPECT_THAT([&] { go_on(other, make_blocks); },
              ThrowsMessage<Error>(
                  HasSubstr("the program's own source is not what the saved run has learned")));
  EXPECT_THAT([&] { go_on(Products(), [] { return Linear(3, 2); }); },
              ThrowsMessage<Error>(HasSubstr("0.weight")));
}

/// One sample of the training part, which one rank reads, cannot be read.
class WornOut : public Products {
 public:
  Status read(data::Part part, int64_t index, layers::Batch& batch, int64_t row) const override {
    if (part == data::Part::kTrain && index == 50) throw std::range_error("page 7 is missing");
    return Products::read(part, index, batch, row);
  }
};

/// What each rank's train_model() throws: "type: words".
std::vector<std::string> thrown_by(const data::Source& source, const models::ModuleLoss& loss) {
  const test::TemporaryFolder folder;
  const TrainOptions options{.config = config_of(folder.path() / "run")};
  std::vector<world::World> worlds = world::make_worlds(2);
  std::vector<std::string> thrown(2);
  test::run_threads(2, [&](int rank) {
    try {
      train_model(worlds[rank], make_blocks, loss, source, options);
    } catch (const Error& error) {
      thrown[rank] = fmt::format("{}: {}", base::name_of(error.code()), error.what());
    } catch (...) {
      thrown[rank] = base::describe_exception(std::current_exception());
    }
  });
  std::ranges::sort(thrown, {}, [](const auto& text) { return text.find("peer_lost") == 0; });
  return thrown;
}

TEST(TrainModel, AnExceptionOfTheProgramOnOneRankIsItsOwnAndReachesTheOthersWithItsWords) {
  const auto by_source = thrown_by(WornOut(), squared_error);
  EXPECT_THAT(by_source[0], AllOf(testing::StartsWith("invalid_argument: "),
                                  HasSubstr("sample 50: std::range_error: page 7 is missing")));
  EXPECT_THAT(by_source[1],
              testing::ContainsRegex("peer_lost: .*rank [01] .*failed: .*page 7 is missing"));
  std::atomic<int> num_losses = 0;
  const auto by_loss =
      thrown_by(Products(), [&](const at::Tensor& output, const at::Tensor& targets) {
        if (++num_losses == 30) throw std::range_error("no loss");
        return squared_error(output, targets);
      });
  EXPECT_EQ(by_loss[0], "std::range_error: no loss") << "as it was thrown";
  EXPECT_THAT(by_loss[1],
              testing::ContainsRegex("peer_lost: .*rank [01] .*failed: std::range_error: no loss"));
}

TEST(TrainModel, HanjiTrainRefusesAModelThatOnlyAProgramHas) {
  const std::vector<plan::Override> preset = {{"model.preset=module"}};
  const CheckedJob job = check_job(plan::parse_config("", "run.toml", preset), FolderUse::kNone);
  ASSERT_EQ(job.loaded.mistakes.size(), 1U);
  EXPECT_THAT(job.loaded.mistakes[0].to_string(), HasSubstr("hanji::train_model()"));
}

}  // namespace
}  // namespace hanji::train
