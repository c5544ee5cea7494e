#pragma once

#include <cstdint>

#include "hanji/plan/config.h"

namespace hanji::train {

/// The learning rate of the update with number `step`, counted from 0.
///
/// A linear warm-up to `learning_rate` over `warmup_steps`; then constant, or a half cosine down to
/// `min_learning_rate` at the last step, or (warmup-stable-decay) constant with a linear fall to
/// `min_learning_rate` over the last fifth.
/// Source  Loshchilov & Hutter, SGDR, ICLR 2017, equation 5; Hu et al., MiniCPM, 2024, section 4.
double learning_rate(const plan::TrainConfig& train, int64_t step);

}  // namespace hanji::train
