#pragma once

#include "hanji/models/gpt.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// The model of a plan in the words of models/gpt.
models::GptOptions gpt_options(const plan::Plan& plan);

}  // namespace hanji::train
