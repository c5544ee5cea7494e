#pragma once

#include <gtest/gtest.h>

#include "hanji/plan/memory.h"
#include "hanji/plan/model_spec.h"
#include "hanji/plan/plan.h"

namespace hanji::plan::test_plan {

/// Two cores, round rates, plenty of memory.
inline PlanInputs two_cores() {
  PlanInputs inputs;
  inputs.machine.physical_cores = inputs.machine.usable_cores = 2;
  inputs.machine.core_cpus = {{0}, {1}};
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.rates = {20e9, 60e9, 10e9, 1e-6, int64_t{32} << 20};
  inputs.kernels = {Gemm::kOneDnn,
                    Attention::kMath,
                    Precision::kFloat32,
                    100e9,
                    40e9,
                    1e-7,
                    1e-7,
                    "onednn 100 GF/s against mkl 50"};
  inputs.data = {65, 10000, 1000};
  return inputs;
}

/// The same for a GPT of one layer, 16 wide, on samples of 8 bytes, whose gradients fill several
/// buckets.
inline PlanInputs small_gpt(const DataFacts& data) {
  PlanInputs inputs = two_cores();
  inputs.data = data;
  inputs.kernels = {Gemm::kMkl, Attention::kMath};
  Config& config = inputs.config;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.width = 16;
  config.model.block = 8;
  config.data.vocabulary = VocabularyKind::kByte;
  config.comm.bucket_bytes = 4096;
  return inputs;
}

/// Of a GPT by the formulas of memory.h: what its facts add up to.
inline int64_t activation_bytes(const ModelSpec& model, const ActivationOptions& options) {
  int64_t bytes = 0;
  for (const SavedTensor& one : saved_tensors(model, options)) bytes += one.bytes();
  return bytes;
}
inline int64_t workspace_bytes(const ModelSpec& model, const ActivationOptions& options) {
  return std::max(workspace_in_head(model, options), workspace_in_block(model, options));
}

/// The plan of these inputs; a test that expects one fails without.
inline Plan made(const PlanInputs& inputs) {
  auto plan = make_plan(inputs);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *std::move(plan) : Plan{};
}

}  // namespace hanji::plan::test_plan
