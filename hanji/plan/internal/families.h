#pragma once

#include "hanji/plan/model_family.h"

namespace hanji::plan {

ModelFamily gpt_family();
ModelFamily resnet_family();

}  // namespace hanji::plan
