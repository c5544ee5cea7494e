// A job whose model is cut by "tp" trains as the job of one rank: losses, norms, parameters.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "hanji/base/dtype.h"
#include "hanji/lens/observer.h"
#include "hanji/models/gpt.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/moves.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/one_process.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;

constexpr int kCutSteps = 5;

struct CutMesh {
  int64_t dp = 1;
  int64_t tp = 1;
  int64_t steps = kCutSteps;
  plan::Sharding data = plan::Sharding::kReplicas;
  bool sequence = false;
  int64_t blocks = 1;  ///< Above 1: stable bits in fp32.
  bool recompute = false;
  int64_t tokens = 1;  ///< Blocks of tokens.
  plan::Moves moves = plan::Moves::kAuto;
  bool drops_bf16 = false;  ///< Computes in bf16, with dropout.
};

/// Heads, vocabulary and batch that few degrees divide.
plan::Plan cut_plan(CutMesh mesh, const Dataset& dataset) {
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  if (mesh.blocks > 1) {
    inputs.kernels.precision = config.compute.dtype = plan::Precision::kFloat32;
    config.train.bits = plan::Bits::kStable;
    config.train.cuts = {mesh.blocks, mesh.tokens};
    config.compute.recompute = mesh.recompute;
  }
  if (mesh.drops_bf16) {
    inputs.kernels.precision = config.compute.dtype = plan::Precision::kBFloat16;
    config.model.dropout = 0.2;
  }
  config.model.layers = 1;
  config.model.heads = 6;
  config.model.width = 96;
  config.train.steps = mesh.steps;
  config.train.micro_batch = 2;
  config.run.ranks = mesh.dp * mesh.tp;
  config.mesh.tp = mesh.tp;
  config.parallel.data = mesh.data;
  config.parallel.sequence = mesh.sequence;
  config.parallel.moves = mesh.moves;
  if (mesh.data == plan::Sharding::kHybrid) config.mesh.fsdp = 2;
  if (mesh.tp > 1) inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

class CutJob : public testing::Test {
 protected:
  static const Dataset& dataset() {
    static const Dataset opened = open_dataset({}, 8, plan::kAuto).or_throw();
    return opened;
  }
  static const JobRun& whole() {
    static const JobRun run = run_job(cut_plan({}, dataset()), dataset())[0];
    return run;
  }
  /// In four blocks of features.
  static void expect_the_bits_of_one_process(CutMesh mesh) {
    static std::map<std::pair<int64_t, bool>, JobRun> wholes;
    mesh.blocks = 4;
    const std::pair job(mesh.tokens, mesh.drops_bf16);
    if (!wholes.contains(job)) {
      const CutMesh one{.blocks = 4, .tokens = mesh.tokens, .drops_bf16 = mesh.drops_bf16};
      wholes[job] = run_job(cut_plan(one, dataset()), dataset())[0];
    }
    const JobRun& alone = wholes.at(job);
    const std::string where = fmt::format("dp {}, tp {}, {}, sequence {}", mesh.dp, mesh.tp,
                                          plan::name_of(mesh.data), mesh.sequence);
    for (const JobRun& run : run_job(cut_plan(mesh, dataset()), dataset())) {
      EXPECT_THAT(apart(run, alone, 0), testing::IsEmpty()) << where;
      EXPECT_EQ(run.norms, alone.norms) << where;
      EXPECT_EQ(run.losses, alone.losses) << where;
    }
  }
  /// After one step of a job on two ranks that is tampered with.
  static std::set<std::string> caught(const Tampering& tampering) {
    const JobRun one_step = run_job(cut_plan({1, 1, 1}, dataset()), dataset())[0];
    std::set<std::string> names;
    for (const JobRun& run : run_job(cut_plan({1, 2, 1}, dataset()), dataset(), tampering)) {
      names.merge(apart(run, one_step));
    }
    return names;
  }
};

TEST_F(CutJob, TrainsAsOneRankDoes) {
  for (const CutMesh mesh : {CutMesh{1, 4}, CutMesh{2, 3}}) {
    const plan::Plan plan = cut_plan(mesh, dataset());
    const std::vector<JobRun> runs = run_job(plan, dataset());
    for (int rank = 0; rank < plan.ranks; ++rank) {
      EXPECT_THAT(apart(runs[rank], whole()), testing::IsEmpty())
          << "rank " << rank << ", dp " << mesh.dp << ", tp " << mesh.tp;
      EXPECT_EQ(runs[rank].norms, runs[0].norms) << "or ranks would clip differently";
      EXPECT_EQ(runs[rank].losses, runs[0].losses);
    }
    for (size_t i = 0; i < whole().losses.size(); ++i) {
      EXPECT_NEAR(runs[0].losses[i], whole().losses[i], kAdamDifference * whole().losses[i]);
    }
    for (size_t i = 0; i < whole().norms.size(); ++i) {
      EXPECT_NEAR(runs[0].norms[i], whole().norms[i], kAdamDifference * whole().norms[i]);
    }
  }
}

TEST_F(CutJob, TrainsAsOneRankDoesWithItsStreamCutByTokens) {
  const CutMesh mesh{.dp = 2, .tp = 3, .sequence = true};  // of 8 tokens 2, 3 and 3
  const std::vector<JobRun> runs = run_job(cut_plan(mesh, dataset()), dataset());
  for (const JobRun& run : runs) {
    EXPECT_THAT(apart(run, whole()), testing::IsEmpty());
    EXPECT_EQ(run.norms, runs[0].norms);
  }
}

TEST_F(CutJob, TrainsAsOneRankDoesUnderEveryStrategy) {
  using plan::Sharding;
  for (const auto data : {Sharding::kServer, Sharding::kZero2, Sharding::kHybrid}) {
    const int64_t coordinates = data == Sharding::kHybrid ? 4 : 2;
    const plan::Plan plan = cut_plan({coordinates, 3, kCutSteps, data}, dataset());
    const std::vector<JobRun> runs = run_job(plan, dataset());
    for (int rank = 0; rank < plan.ranks; ++rank) {
      EXPECT_THAT(apart(runs[rank], whole()), testing::IsEmpty())
          << "rank " << rank << ", " << plan::name_of(data);
      EXPECT_EQ(runs[rank].norms, runs[0].norms);
    }
    for (size_t i = 0; i < whole().norms.size(); ++i) {
      EXPECT_NEAR(runs[0].norms[i], whole().norms[i], kAdamDifference * whole().norms[i]);
    }
  }
}

TEST_F(CutJob, TrainsAsOneRankDoesWhereWeightsMove) {
  using plan::Sharding;
  for (const auto data : {Sharding::kReplicas, Sharding::kServer, Sharding::kZero3}) {
    const CutMesh mesh{.dp = 2, .tp = 3, .data = data, .moves = plan::Moves::kWeights};
    for (const JobRun& run : run_job(cut_plan(mesh, dataset()), dataset())) {
      EXPECT_THAT(apart(run, whole()), testing::IsEmpty()) << plan::name_of(data);
    }
  }
}

TEST_F(CutJob, HasTheBitsOfOneProcessWhereFeaturesAreInBlocks) {
  for (const int64_t tp : {3, 4}) expect_the_bits_of_one_process({.tp = tp});
  expect_the_bits_of_one_process({.tp = 2, .recompute = true});
}

TEST_F(CutJob, HasTheBitsOfOneProcessInBlocksUnderEveryStrategyThatShards) {
  using plan::Sharding;
  expect_the_bits_of_one_process({.dp = 2, .tp = 3, .data = Sharding::kZero1});
  expect_the_bits_of_one_process({.dp = 3, .tp = 2, .data = Sharding::kZero3});
  expect_the_bits_of_one_process({.dp = 4, .tp = 2, .data = Sharding::kHybrid});
}

TEST_F(CutJob, HasTheBitsOfOneProcessWithItsStreamCutByTokensInBlocks) {
  constexpr int64_t kTokens = 3;  // of 8 tokens 2, 3 and 3
  expect_the_bits_of_one_process({.tp = 2, .tokens = kTokens});
  expect_the_bits_of_one_process({.dp = 2, .tp = 3, .sequence = true, .tokens = kTokens});
  expect_the_bits_of_one_process({.tp = 3, .sequence = true, .recompute = true, .tokens = kTokens});
  expect_the_bits_of_one_process(
      {.dp = 2, .tp = 2, .data = plan::Sharding::kZero3, .sequence = true, .tokens = kTokens});
}

TEST_F(CutJob, HasTheBitsOfOneProcessWithItsTokensInBlocksWhereBFloat16IsDropped) {
  constexpr int64_t kTokens = 4;
  expect_the_bits_of_one_process({.dp = 2, .tokens = kTokens, .drops_bf16 = true});
  expect_the_bits_of_one_process(
      {.tp = 2, .sequence = true, .tokens = kTokens, .drops_bf16 = true});
  expect_the_bits_of_one_process(
      {.tp = 3, .sequence = true, .recompute = true, .tokens = kTokens, .drops_bf16 = true});
}

TEST_F(CutJob, VerifiesOneProcessInBlocks) {
  const plan::Plan plan = cut_plan({.blocks = 4}, dataset());
  const JobRun alone = run_job(plan, dataset())[0];
  compute::apply(plan.kernels, 1);
  OneProcess process(plan, dataset());
  Observer observer;
  for (int64_t step = 0; step < kCutSteps; ++step) {
    const StepTotals totals = process.step(observer);
    EXPECT_EQ(totals.loss, alone.losses[step]);
    EXPECT_EQ(totals.gradient_norm, alone.norms[step]);
  }
}

/// What a rank of two sends in forward and backward.
double sent_in_a_pass(const plan::Config& config, int64_t samples, const Dataset& dataset) {
  double bytes = 0;
  const plan::ModelFacts facts = count_facts(config, Workload{dataset});
  for (const plan::LayerFacts& layer : facts.layers) {
    for (const plan::LayerCall& call : layer.calls) {
      bytes += static_cast<double>(call.counts[0].of(samples) * base::size_of(call.dtype));
    }
  }
  return bytes;
}

TEST_F(CutJob, TheChoiceOfWhatMovesPricesTheBytesThatMove) {
  using plan::Moves, plan::Precision;
  for (const Precision dtype : {Precision::kFloat64, Precision::kFloat32, Precision::kBFloat16}) {
    for (const bool sequence : {false, true}) {
      plan::Plan plan = cut_plan({.tp = 2, .sequence = sequence}, dataset());
      plan.kernels.precision = plan.config.compute.dtype = dtype;
      const auto compared = plan::compare_moves(plan);
      ASSERT_TRUE(compared);
      const auto sent = [&](Moves moves) {
        plan.config.parallel.moves = moves;
        return sent_in_a_pass(plan.config, plan.micro_batch, dataset());
      };
      // The half of a bias of 4 x 96 features is gathered, and its gradients are scattered.
      const double bias = 2.0 * 192 * static_cast<double>(plan::parameter_bytes(dtype));
      EXPECT_EQ(sent(Moves::kWeights) - sent(Moves::kActivations),
                compared->weights.sent_bytes - compared->activations.sent_bytes + bias)
          << name_of(dtype) << ", sequence " << sequence;
    }
  }
}

TEST_F(CutJob, CopiesOfPartsThatDoNotLieOneAfterAnotherAreCounted) {
  const auto copied_by_block = [&](bool sequence) {
    plan::Plan plan = cut_plan({.tp = 2, .sequence = sequence}, dataset());
    plan.config.parallel.moves = plan::Moves::kActivations;
    return count_facts(plan.config, Workload{dataset()}).layers[1].copied;
  };
  EXPECT_TRUE(copied_by_block(false).empty());
  const plan::ModelSpec model = plan::resolve_model(cut_plan({.tp = 2}, dataset()).config.model);
  const auto copied = copied_by_block(true);
  EXPECT_FALSE(copied.empty());
  for (const plan::Amount& one : copied) {
    EXPECT_EQ(one, (plan::Amount{0, model.block * model.width}));
  }
}

/// The most elements of any tensor that operations of this thread give.
class Largest : public lens::Observer {
 public:
  void after(const lens::Operation& operation) override {
    operation.for_each_output(
        [this](const at::Tensor& one) { most_ = std::max(most_, one.numel()); });
  }
  int64_t elements() const { return most_; }

 private:
  int64_t most_ = 0;
};

int64_t largest_in_a_step(const models::GptOptions& options, int64_t samples) {
  const auto model = models::make_gpt(options);
  const at::Tensor tokens = at::arange(samples * options.block).view({samples, -1});
  const layers::Batch batch{tokens, tokens, {0, samples}, tokens.numel()};
  Largest largest;
  const lens::Scope seen(largest);
  model->loss_sum(batch).sum.backward();
  return largest.elements();
}

TEST(CutGptJob, NoRankHasATensorOfAllLogits) {
  models::GptOptions options{.layers = 1, .heads = 3, .width = 24, .block = 16, .vocabulary = 2050};
  constexpr int64_t kSamples = 4;
  const int64_t logits = kSamples * options.block * options.vocabulary;
  EXPECT_EQ(largest_in_a_step(options, kSamples), logits) << "or this would not see it";
  for (const bool sequence : {false, true}) {
    test::run_ranks(3, [&](world::World& world) {
      models::GptOptions own = options;
      own.sequence = sequence;
      own.axis = parallel::tensor::Axis(world.group());
      EXPECT_LE(largest_in_a_step(own, kSamples), logits / 3 + logits / options.vocabulary);
    });
  }
}

/// What autograd would give if each rank added the bias of a sum to its own term.
TEST_F(CutJob, ABiasThatEveryRankAddsIsSeenAtItsName) {
  const auto names = caught({.before_update = [](Job& job) {
    gradient_of(job, "attn.c_proj.bias").mul_(job.cut->size());
  }});
  EXPECT_THAT(names, testing::ElementsAre(HasSubstr("attn.c_proj.bias")));
}

TEST_F(CutJob, ATiedTableThatIsSummedOnceTooOftenIsSeenAtItsName) {
  const auto names = caught(
      {.before_update = [](Job& job) { gradient_of(job, "wte.weight").mul_(job.cut->size()); }});
  EXPECT_THAT(names, testing::ElementsAre(HasSubstr("wte.weight")));
}

TEST_F(CutJob, TheNormCountsWhatIsWholeOnceAndAllParts) {
  std::vector<double> twice(2), counted(2);
  const plan::Plan plan = cut_plan({1, 2}, dataset());
  run_job(plan, dataset(), {.before_update = [&](Job& job) {
            double mine = 0;
            for (const auto& one : job.strategy->parameters()) {
              mine += std::pow(one.tensor.grad().norm().item<double>(), 2);
            }
            twice[job.cut->rank()] = mine;
            counted[job.cut->rank()] = std::pow(gradient_norm(job), 2);
          }});
  EXPECT_EQ(counted[0], counted[1]);
  EXPECT_GT(twice[0] + twice[1], 1.01 * counted[0]) << "or this would not see it";
}

TEST_F(CutJob, AGradientThatIsNotFiniteOnOneRankSkipsTheStepOnAll) {
  plan::Plan plan = cut_plan({1, 2}, dataset());
  plan.config.train.nan = plan::NanPolicy::kSkip;
  const auto runs =
      run_job(plan, dataset(), {.at_start = [](Job& job) {
                if (job.cut->rank() == 0) return;
                for (const auto& one : job.strategy->parameters()) {
                  if (!one.name.ends_with("c_fc.weight")) continue;
                  one.tensor.register_hook([](const at::Tensor& g) { return g * std::nan(""); });
                }
              }});
  for (const JobRun& run : runs) EXPECT_EQ(run.num_skipped, kCutSteps);
}

TEST_F(CutJob, WholeParametersThatPartAreNamed) {
  const auto run = [&] {
    (void)run_job(cut_plan({1, 2}, dataset()), dataset(), {.at_start = [](Job& job) {
                    const at::NoGradGuard no_grad;
                    for (const auto& one : job.strategy->parameters()) {
                      if (one.name.ends_with("ln_f.bias")) one.tensor.add_(job.cut->rank());
                    }
                    check_parameters(job);
                  }});
  };
  EXPECT_THAT(run, testing::ThrowsMessage<Error>(HasSubstr("transformer.ln_f.bias")));
}

}  // namespace
}  // namespace hanji::train
