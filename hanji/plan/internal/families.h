#pragma once

#include "hanji/plan/model_family.h"

namespace hanji::plan {

ModelFamily gpt_family();
ModelFamily resnet_family();
/// A torch::nn module of a program, which trains it by hanji::train_model().
ModelFamily module_family();

}  // namespace hanji::plan
