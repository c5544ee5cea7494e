#pragma once

#include "hanji/plan/memory.h"
#include "hanji/plan/model_family.h"

namespace hanji::plan {

ModelFamily gpt_family();
/// Ranks among which features are cut, blocks of which each has whole ones, and what else they share.
struct FeatureCut {
  int degree = 1;
  int blocks = 1;
  bool sequence = false;
  Moves moves = Moves::kActivations;
  int context = 1;  ///< Ranks that have parts of the tokens, and all features.
  ContextWay way = ContextWay::kUlysses;
  int64_t tokens = 0;  ///< Of a sample, on the one that has most; 0: all.
};
/// Of any number of samples: options.micro_batch is not read. Of a model that is cut, what the rank that
/// has most of it has; its calls are not in it.
ModelFacts gpt_facts(const ModelSpec& model, const ActivationOptions& options, FeatureCut cut = {});
ModelFamily resnet_family();
/// AlphaFold 2's stack, of sequences and pairs; and of pairs alone.
ModelFamily evoformer_family();
ModelFamily pairformer_family();
/// A torch::nn module of a program, which trains it by hanji::train_model().
ModelFamily module_family();

}  // namespace hanji::plan
