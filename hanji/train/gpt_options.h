#pragma once

#include "hanji/models/gpt.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// The model of a plan in the words of models/gpt, on any device.
models::GptOptions gpt_options(const plan::Plan& plan, c10::Device device = c10::kCPU);

}  // namespace hanji::train
