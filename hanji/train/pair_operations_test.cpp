#include "hanji/train/pair_operations.h"

#include <gmock/gmock.h>

#include <map>

#include "hanji/data/batch.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/make_model.h"
#include "hanji/train/record_operations.h"

namespace hanji::train {
namespace {

struct PairJob {
  int64_t residues = 12;
  int64_t blocks = 4;
  int64_t axial = 1;
  plan::Precision dtype = plan::Precision::kFloat32;
  int64_t chunk_bytes = 0;
};

plan::Plan plan_of(const PairJob& job) {
  plan::PlanInputs inputs;
  plan::Config& config = inputs.config;
  config.model = {.preset = "evoformer-tiny", .layers = job.blocks, .heads = 2, .width = 16};
  config.model.chunk_bytes = job.chunk_bytes;
  config.data.pairs = plan::Pairs::kContacts;
  config.data.residues = job.residues;
  config.data.sequences = job.residues / 2 + 1;
  config.data.systems = 60;
  config.train.global_batch = 4;
  config.compute.dtype = job.dtype;
  config.mesh.axial = config.run.ranks = job.axial;
  inputs.data = open_pairs(config).or_throw().facts();
  inputs.machine.physical_cores = inputs.machine.usable_cores = 2;
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{1} << 45;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  inputs.kernels.precision = job.dtype;
  inputs.model = count_pair_facts(config, inputs.data.vocabulary);
  return plan::make_plan(inputs).or_throw();
}

/// All of them, then those of each layer in forward, repeated forward and backward.
std::vector<double> calls_of(const plan::Operation& operation) {
  std::vector<double> calls = {operation.count};
  for (const auto& [forward, repeated, backward] : operation.layers) {
    calls.insert(calls.end(), {forward, repeated, backward});
  }
  return calls;
}

using CallsByName = std::map<std::string, std::vector<double>>;

CallsByName calls_of(const std::vector<plan::Operation>& operations) {
  CallsByName calls;
  for (const plan::Operation& one : operations) calls[one.name] = calls_of(one);
  return calls;
}

std::vector<RecordedOperation> record_in_memory(const plan::Plan& plan) {
  layers::Batch batch;
  data::read_first(*open_pairs(plan.config).or_throw().samples, 2, batch);
  const auto ranks = static_cast<int>(plan.config.mesh.axial);
  const auto axis = parallel::tensor::Axis::silent(0, ranks, [](const auto&) {});
  const auto model = make_model(plan, {}, c10::kCPU, {.cut = axis});
  return record_operations(*model, batch, {});
}

TEST(PairOperations, AreThoseOfAPassWithAllBlocks) {
  for (const PairJob& job : {PairJob{}, PairJob{.blocks = 1}, PairJob{.axial = 2},
                             PairJob{.dtype = plan::Precision::kBFloat16}}) {
    const plan::Plan plan = plan_of(job);
    CallsByName expected;
    for (const auto& one : record_in_memory(plan)) {
      expected[one.operation.name] = calls_of(one.operation);
    }
    EXPECT_EQ(calls_of(pair_operations(plan, record_in_memory)), expected)
        << job.blocks << " blocks, " << job.axial << " ranks";
  }
}

/// Sums of gradients by another name.
std::map<std::string, double> with_one_name_of_sums(const std::vector<RecordedOperation>& all) {
  std::map<std::string, double> calls;
  for (const auto& [operation, make, bytes, scale] : all) {
    std::string name = operation.name;
    if (name.starts_with("aten::add_ ")) name = "aten::add " + name.substr(11) + " 1";
    if (name.ends_with(" 1 1")) name.resize(name.size() - 2);
    calls[name] += operation.count;
  }
  return calls;
}

/// But for the number of this rank's targets, which cannot be counted there.
TEST(PairOperations, WithoutMemoryAreThoseInIt) {
  for (const PairJob& job : {PairJob{}, PairJob{.axial = 2, .dtype = plan::Precision::kBFloat16}}) {
    const plan::Plan plan = plan_of(job);
    const auto found = with_one_name_of_sums(record_without_memory(plan, 2));
    auto expected = with_one_name_of_sums(record_in_memory(plan));
    EXPECT_LE(expected.size(), found.size() + 3) << "ge, sum, item";
    for (const auto& [name, calls] : found) {
      if (!name.starts_with("aten::narrow")) EXPECT_EQ(calls, expected[name]) << name;
    }
  }
}

TEST(PairOperations, AJobThatIsSmallIsTimedAsItIs) {
  const plan::Plan plan = plan_of({});
  const PartOfPairs part = part_of_pairs(plan, 2, 2);
  EXPECT_EQ(part.samples, 2);
  EXPECT_EQ(part.plan.config.data.residues, 12);
  EXPECT_EQ(part.plan.config.data.sequences, 7);
  EXPECT_EQ(part.plan.config.model.layers, 2) << "of four that are alike";
}

/// 3000 residues have logits of 216 GB in each attention of pairs.
TEST(PairOperations, OfALargeJobAPartIsTimedThatIsSmall) {
  for (const int64_t chunk_bytes : {int64_t{0}, int64_t{1} << 33}) {
    const plan::Plan plan = plan_of({.residues = 3000, .axial = 2, .chunk_bytes = chunk_bytes});
    const PartOfPairs part = part_of_pairs(plan, 4, 2);
    EXPECT_EQ(part.samples, 1);
    const plan::Config& config = part.plan.config;
    EXPECT_LT(config.data.residues, 200);
    EXPECT_GE(config.data.residues, 20);
    EXPECT_NEAR(static_cast<double>(config.data.sequences),
                static_cast<double>(config.data.residues) / 2, 2);
    EXPECT_EQ(config.model.chunk_bytes > 0, chunk_bytes > 0);
    EXPECT_EQ(part.workload.dataset.samples->shape().targets[0], config.data.residues);
    EXPECT_EQ(plan.config.data.residues, 3000);
  }
}

}  // namespace
}  // namespace hanji::train
