#pragma once

#include "hanji/plan/memory.h"
#include "hanji/plan/model_family.h"

namespace hanji::plan {

ModelFamily gpt_family();
/// Of any number of samples: options.micro_batch is not read. Of a model cut into `degree` parts the
/// operations are those of the largest, and the bytes those of the whole.
ModelFacts gpt_facts(const ModelSpec& model, const ActivationOptions& options, int degree = 1);
ModelFamily resnet_family();
/// A torch::nn module of a program, which trains it by hanji::train_model().
ModelFamily module_family();

}  // namespace hanji::plan
