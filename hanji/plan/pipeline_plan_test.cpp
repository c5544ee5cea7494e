#include "hanji/plan/pipeline_plan.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/layout/unit.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/stage_traffic.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using layout::Range;
using test_plan::made;
using test_plan::two_cores;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Amount kFlow = {.fixed = 128, .per_sample = 4096};

/// Facts as counted: with flows, and a head that reads the token embedding.
PlanInputs staged(int pp, int dp = 1) {
  PlanInputs inputs = two_cores();
  ModelFacts facts = made(inputs).model;
  for (LayerFacts& layer : facts.layers) layer.flow = kFlow;
  facts.layers.back().tied = {0};
  inputs.model = facts;
  inputs.config.mesh.pp = pp;
  inputs.config.run.ranks = pp * dp;
  return inputs;
}

TEST(CutStages, HaveLongestStagesAsShortAsPossible) {
  EXPECT_THAT(cut_stages(std::vector<double>{1, 1, 1, 1}, 2),
              ElementsAre(Range{0, 2}, Range{2, 4}));
  EXPECT_THAT(cut_stages(std::vector<double>{0, 4, 4, 4, 4, 6}, 3),
              ElementsAre(Range{0, 3}, Range{3, 5}, Range{5, 6}));
  EXPECT_THAT(cut_stages(std::vector<double>{9, 0, 0}, 3),
              ElementsAre(Range{0, 1}, Range{1, 2}, Range{2, 3}));
}

TEST(PlanOfAPipeline, StagesCoverTheLayersAndRanksWalkTheSchedule) {
  const Plan plan = made(staged(2));
  const std::vector<Range> stages = stages_of(plan);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].begin, 0);
  EXPECT_EQ(stages[1].end, std::ssize(plan.model.layers));
  EXPECT_EQ(plan.config.pipeline.micro_batches, 8);
  const auto schedule = schedule_of(plan.config, 8).or_throw();
  for (const int rank : {0, 1}) EXPECT_EQ(step_actions(plan, rank), schedule.ranks[rank]);
  EXPECT_THAT(describe(plan),
              AllOf(HasSubstr("1f1b: 2 stages on 2 ranks, 8 micro-batches"), HasSubstr("stage 1")));
}

TEST(PlanOfAPipeline, AnyStagesByHand) {
  PlanInputs inputs = staged(2);
  inputs.config.pipeline.schedule = PipelineKind::kInterleaved;
  inputs.config.pipeline.virtual_stages = 2;
  inputs.config.pipeline.micro_batches = 4;
  inputs.config.pipeline.cut = {1, 2, 3};
  EXPECT_THAT(stages_of(made(inputs)), ElementsAre(Range{0, 1}, Range{1, 2}, Range{2, 3},
                                                   Range{3, std::ssize(inputs.model->layers)}));
}

/// Three stages, of which rank 0 has two.
constexpr const char* kLines =
    "0F0,0F1,2F0,2B0,0B0,2F1,2B1,0B1\n"
    "1F0,1F1,1B0,1B1\n";

PlanInputs of_lines(int pp) {
  PlanInputs inputs = staged(pp);
  inputs.config.pipeline.schedule = PipelineKind::kUser;
  inputs.config.pipeline.lines = kLines;
  return inputs;
}

TEST(PlanOfAPipeline, TakesStagesAndMicroBatchesOfAFileAndKeepsItsLines) {
  const Plan plan = made(of_lines(2));
  EXPECT_THAT(ranks_of_stages(plan), ElementsAre(0, 1, 0));
  EXPECT_EQ(stages_of(plan).size(), 3u);
  EXPECT_EQ(plan.shares[0].num_micro_batches, 2);
  EXPECT_EQ(step_actions(plan, 0)[0],
            (schedule::Action{.kind = schedule::ActionKind::kForward, .stage = 0}));
  EXPECT_EQ(step_actions(plan_from_json(to_json(plan)).or_throw(), 1), step_actions(plan, 1));
}

TEST(PlanOfAPipeline, AllThatAFileDoesNotFitIsNamedAtOnce) {
  PlanInputs inputs = of_lines(3);
  inputs.config.pipeline.micro_batches = 4;
  inputs.config.pipeline.virtual_stages = 2;
  EXPECT_THAT(make_plan(inputs).status().message(),
              AllOf(HasSubstr("pipeline.schedule has lines of 2 ranks, but mesh.pp is 3"),
                    HasSubstr("has 2 micro-batches, but pipeline.micro_batches is 4"),
                    HasSubstr("pipeline.virtual_stages is 2, but pipeline.schedule = user")));
  inputs = of_lines(2);
  inputs.config.pipeline.lines = "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n";
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("pipeline.schedule: deadlock: rank 0 at action 2"));
  inputs = of_lines(2);
  inputs.config.train.global_batch = 1;
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("the file has 2 micro-batches, but the samples of a data coordinate make "
                        "1; set another train.global_batch"));
}

TEST(PlanOfAPipeline, ATiedWeightIsOnEveryRankThatReadsIt) {
  const PlanInputs inputs = staged(2);
  const Plan plan = made(inputs);
  const int64_t whole = inputs.model->num_parameters();
  const int64_t table = inputs.model->parameters[0].elements;
  EXPECT_EQ(facts_of_rank(plan, 0).num_parameters() + facts_of_rank(plan, 1).num_parameters(),
            whole + table);
  const PipelineFacts facts = pipeline_facts(plan);
  ASSERT_EQ(facts.tied.size(), 1u);
  EXPECT_THAT(facts.tied[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(facts.tied[0].parameter, 0);
}

TEST(PlanOfAPipeline, MessagesAreFlowsAndTheirGradients) {
  const Plan plan = made(staged(2, 2));
  EXPECT_EQ(pipeline_facts(plan).traffic.bytes,
            2 * (2 * plan.shares[0].num_micro_batches * kFlow.fixed + 16 * kFlow.per_sample));
}

TEST(PlanOfAPipeline, GpipeKeepsTheActivationsOfAllMicroBatches) {
  const auto kept = [](PipelineKind kind) {
    PlanInputs inputs = staged(2);
    inputs.config.pipeline.schedule = kind;
    const Plan plan = made(inputs);
    const auto lines = rank_memory(plan, plan.micro_batch, 0);
    return std::ranges::find(lines, "activations", &MemoryLine::category)->bytes;
  };
  EXPECT_EQ(kept(PipelineKind::kGpipe), 4 * kept(PipelineKind::k1F1B)) << "8 micro-batches and 2";
}

/// Zero-bubble on two ranks, of four layers and the ends.
PlanInputs split_in_two(bool splits) {
  PlanInputs inputs = staged(2);
  inputs.config.pipeline.schedule = PipelineKind::kZbH1;
  inputs.config.pipeline.cut = {3};
  for (size_t i = 1; !splits && i < inputs.model->layers.size(); ++i) {
    inputs.model->layers[i].for_weights.reset();
  }
  return inputs;
}

TEST(PlanOfAPipeline, SaysWhichStagesSplitTheirBackward) {
  EXPECT_THAT(describe(made(split_in_two(true))),
              HasSubstr("all stages leave gradients of weights to backward_weight"));
  EXPECT_THAT(describe(made(split_in_two(false))),
              HasSubstr("in all stages backward_input computes the gradients of weights too"));
  PlanInputs one = split_in_two(true);
  for (LayerFacts& layer : one.model->layers) {
    if (&layer >= &one.model->layers[3]) layer.for_weights.reset();
  }
  EXPECT_THAT(describe(made(one)), HasSubstr("in stages 1 backward_input computes"));
  EXPECT_THAT(split_stages(made(one)), ElementsAre(true, false));
  EXPECT_THAT(describe(made(staged(2))), testing::Not(HasSubstr("backward_input")));
}

TEST(PlanOfAPipeline, ASplitBackwardShortensTheStepAndKeepsWhatWeightsNeed) {
  const Plan split = made(split_in_two(true)), whole = made(split_in_two(false));
  EXPECT_LT(pipeline_timeline(split, 0).bubble(), pipeline_timeline(whole, 0).bubble());
  EXPECT_NEAR(pipeline_timeline(split, 0).busiest_seconds,
              pipeline_timeline(whole, 0).busiest_seconds, 1e-12);
  PlanInputs more = split_in_two(true);
  for (LayerFacts& layer : more.model->layers) {
    if (layer.for_weights) layer.for_weights->fixed += 1 << 20;
  }
  const auto kept = [](const Plan& plan) {
    const auto lines = rank_memory(plan, plan.micro_batch, 1);
    return std::ranges::find(lines, "activations", &MemoryLine::category)->bytes;
  };
  const int64_t added = kept(made(more)) - kept(split);
  EXPECT_GE(added, int64_t{1} << 20) << "the last rank has a backward_weight to come";
}

TEST(PlanOfAPipeline, LayersTakeAThirdOfTheirProductsForWeights) {
  ModelFacts facts = *staged(2).model;
  const OperationTimes none;
  const auto times = layer_times(facts, none);
  const auto& block = times[1];
  EXPECT_EQ(times[0].backward_weight, 0) << "its products, if it has any, are not split";
  EXPECT_GT(block.backward_weight, 0);
  EXPECT_LT(block.backward_weight, block.forward) << "norms and attention have no weights";
  facts.layers[1].is_repeated = true;
  const auto again = layer_times(facts, none)[1];
  EXPECT_NEAR(again.backward_input, block.backward_input + block.forward, 1e-12);
  EXPECT_NEAR(again.backward_weight, block.backward_weight, 1e-12);
  const std::vector<Range> stages = {{0, 2}};
  const auto stage = stage_times(facts, none, stages, 1)[0];
  EXPECT_NEAR(stage.backward_weight, times[0].backward_input + block.backward_weight, 1e-12)
      << "for the input of layer 0 nobody waits";
}

TEST(PlanOfAPipeline, AllMistakesAreNamedAtOnce) {
  PlanInputs inputs = staged(2);
  inputs.config.pipeline.schedule = PipelineKind::kDualPipeV;
  inputs.config.pipeline.micro_batches = 3;
  inputs.config.pipeline.cut = {2, 1};
  EXPECT_THAT(
      make_plan(inputs).status().message(),
      AllOf(HasSubstr("pipeline.cut makes 3 stages, but mesh.pp = 2 with 2 stages each has 4"),
            HasSubstr("pipeline.cut: stage 1 would have layers [2, 1)"),
            HasSubstr("schedule dualpipev: 3 micro-batches on 2 ranks; take at least 4")));
  PlanInputs beyond = staged(2);
  beyond.config.pipeline.cut = {9};
  EXPECT_THAT(make_plan(beyond).status().message(),
              HasSubstr("stage 0 would have layers [0, 9) of"));
  PlanInputs many = staged(9);
  EXPECT_THAT(make_plan(many).status().message(),
              HasSubstr("mesh.pp is 9, but a rank has whole layers"));
}

TEST(PlanOfAPipeline, MicroBatchesThatSamplesDoNotMakeAreRejected) {
  PlanInputs inputs = staged(2);
  inputs.config.train.global_batch = 9;
  inputs.config.pipeline.micro_batches = 4;
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("pipeline.micro_batches is 4, but the samples of a data coordinate make 3 "
                        "micro-batches; set pipeline.micro_batches = 3"));
}

constexpr double kLinkRate = 125e6;

PlanInputs on_hosts(PlanInputs inputs, std::vector<int> ranks_per_host) {
  inputs.ranks_per_host = std::move(ranks_per_host);
  inputs.config.comm.link_bytes_per_second = static_cast<int64_t>(kLinkRate);
  inputs.config.comm.link_latency = 1e-3;
  return inputs;
}

TEST(PlanOfAPipeline, FlowsGoOverTheLinkWhereAStageEndsItsHost) {
  const PlanInputs inputs = staged(4);
  const int64_t all = stage_traffic(made(inputs)).bytes;
  const auto traffic = [&](std::vector<int> hosts) {
    return stage_traffic(made(on_hosts(inputs, std::move(hosts))));
  };
  EXPECT_EQ(traffic({2, 2}).network_bytes, all / 3);
  EXPECT_EQ(traffic({2, 2}).bytes, all / 3 * 2);
  EXPECT_EQ(traffic({1, 1, 2}).network_bytes, all / 3 * 2);
  // The host in the middle passes on what it gets.
  EXPECT_EQ(traffic({1, 1, 2}).busiest_host, 1);
  EXPECT_EQ(traffic({1, 1, 2}).busiest_bytes, all / 3);
  EXPECT_EQ(traffic({1, 1, 2}).link_seconds(), static_cast<double>(all / 3) / kLinkRate);
  EXPECT_EQ(traffic({4}).network_bytes, 0);
}

TEST(PlanOfAPipeline, WhatStagesWaitForOnTheLinkIsBubble) {
  const Plan here = made(staged(2));
  const Plan there = made(on_hosts(staged(2), {1, 1}));
  const int64_t bytes = kFlow.of(there.micro_batch);
  const double message = 1e-3 + static_cast<double>(bytes) / kLinkRate;
  EXPECT_EQ(message_seconds(there, 0), std::vector<double>{message});
  // The first flow and the last gradient are behind nothing.
  EXPECT_GE(pipeline_timeline(there, 0).seconds,
            pipeline_timeline(here, 0).seconds + 2 * message - 1e-9);
  EXPECT_THAT(describe(there), AllOf(HasSubstr(" to another host"), HasSubstr("between hosts "),
                                     HasSubstr("over the busiest link, of host 0, ")));
  EXPECT_THAT(describe(here), testing::Not(HasSubstr("another host")));
}

TEST(PlanOfAPipeline, GradientsStayOnTheHostThatHasAllReplicasOfAStage) {
  const auto network_bytes = [](std::vector<int> hosts) {
    return made(on_hosts(staged(2, 2), std::move(hosts))).predicted.network_bytes_per_step;
  };
  const PlanInputs inputs = staged(2, 2);
  const int64_t flows = stage_traffic(made(inputs)).bytes;
  const int64_t table = 4 * inputs.model->parameters[0].elements;
  // Both copies of the tied weight in each data coordinate, and small sums.
  const int64_t stages_apart = network_bytes({2, 2}), all_apart = network_bytes({1, 1, 1, 1});
  EXPECT_GT(stages_apart, flows + 2 * 2 * table);
  EXPECT_LT(stages_apart, flows + 2 * 2 * table + 500);
  EXPECT_GT(all_apart, stages_apart + 2 * 4 * inputs.model->num_parameters());
}

TEST(PlanOfAPipeline, PaddingOfATiedWeightsShardIsNotSummed) {
  PlanInputs inputs = staged(2);
  inputs.model->parameters[0].elements += 1;
  const int64_t whole = made(inputs).predicted.wire_bytes_per_step;
  inputs.config.parallel.data = Sharding::kZero1;
  EXPECT_EQ(made(inputs).predicted.wire_bytes_per_step, whole) << "one data rank has all of it";
}

TEST(PlanOfAPipeline, WhatSharesMemoryIsRejectedOnSeveralHostsAllAtOnce) {
  PlanInputs inputs = on_hosts(staged(2, 2), {2, 2});
  inputs.config.parallel.data = Sharding::kZero1;
  EXPECT_FALSE(shards_span_hosts(made(inputs))) << "a host has the ranks of a stage";
  inputs.ranks_per_host = {3, 1};
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("mesh.fsdp is 2, but host 0 has 3 ranks"));
  inputs.config.mesh.tp = 2;
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("mesh.tp is 2, but host 0 has 3 ranks"));
}

TEST(PlanOfAPipeline, RanksOfAHostReadTheirSamplesOnce) {
  const Plan plan = made(on_hosts(staged(4), {2, 1, 1}));
  const auto data = [&](int rank) {
    const auto lines = rank_memory(plan, plan.micro_batch, rank);
    return std::ranges::find(lines, "data", &MemoryLine::category)->bytes;
  };
  const int64_t once = largest_share(plan) * plan.model.sample_bytes;
  EXPECT_EQ(data(0), 2 * once) << "which rank 1 maps";
  EXPECT_EQ(data(1), 0);
  EXPECT_EQ(data(2), once);
  EXPECT_EQ(data(3), once);
}

TEST(PlanOfAPipeline, JsonKeepsTheStages) {
  const Plan plan = made(staged(2));
  const Plan read = plan_from_json(to_json(plan)).or_throw();
  EXPECT_EQ(stages_of(read), stages_of(plan));
  EXPECT_EQ(step_actions(read, 1), step_actions(plan, 1));
  EXPECT_EQ(pipeline_facts(read).tied.size(), 1u);
  EXPECT_EQ(read.model.layers[1].for_weights, plan.model.layers[1].for_weights);
  EXPECT_EQ(read.model.layers[0].for_weights, std::nullopt);
}

PlanInputs stable_v(int pp) {
  PlanInputs inputs = staged(pp);
  inputs.config.train.bits = Bits::kStable;
  inputs.config.pipeline.schedule = PipelineKind::kZbV;
  return inputs;
}

TEST(PlanOfAPipeline, InStableALaterUseOnARankHasASumOfItsOwn) {
  const int64_t table = made(two_cores()).model.parameters[0].elements;
  EXPECT_THAT(facts_of_rank(made(stable_v(2)), 0).tied_sizes(), ElementsAre(table));
  EXPECT_THAT(facts_of_rank(made(stable_v(2)), 1).tied_sizes(), ElementsAre());
  EXPECT_THAT(facts_of_rank(made(staged(2)), 1).tied_sizes(), ElementsAre());
}

TEST(PlanOfAPipeline, InStableEveryGradientIsInAPartialSumOfTheNorm) {
  Plan plan = made(stable_v(2));
  int64_t sums = 0;
  for (const ParameterFacts& one : plan.model.parameters) sums += layout::num_blocks(one.elements);
  EXPECT_THAT(pipeline_facts(plan).norm_sums, ElementsAre(sums));
  plan.config.train.cuts.features = 3;
  plan.model.parameters[0].blocks = {1024, 1025, 1};  // 1, 2 and 1
  const int64_t others = sums - layout::num_blocks(plan.model.parameters[0].elements);
  EXPECT_THAT(pipeline_facts(plan).norm_sums, ElementsAre(others + 4));
}

TEST(PlanOfAPipeline, GrainsComeInTheOrderOfTheSchedule) {
  PlanInputs inputs = staged(2, 2);
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.global_batch = 8;
  inputs.config.pipeline.schedule = PipelineKind::kLoopedBfs;
  const Plan plan = made(inputs);
  EXPECT_THAT(grains_in_order(plan, 1, 0), ElementsAre(7, 6, 5, 4));
  EXPECT_THAT(grains_in_order(plan, 1, 1), ElementsAre());
}

TEST(PlanOfAPipeline, InStableManyUsesOnSeveralRanksAreRejected) {
  PlanInputs inputs = staged(2);
  inputs.config.train.bits = Bits::kStable;
  inputs.model->layers[1].tied = {0};
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("parameter 0 is read by 3 layers on 2 ranks"));
}

TEST(PlanOfAPipeline, TheJobIsThatOfOneProcess) {
  EXPECT_EQ(made(staged(2)).job_hash, made(two_cores()).job_hash);
}

}  // namespace
}  // namespace hanji::plan
