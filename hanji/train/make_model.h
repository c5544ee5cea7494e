#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "hanji/layers/flow.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// The axes that a model is made on, as in MakeOptions.
struct ModelAxes {
  parallel::tensor::Axis cut = {};
  parallel::tensor::Axis context = {};
};

/// Makes the model of a plan, or of a program, on any device; on an axis this rank's part of it, in the
/// blocks of the plan's job; `layers` as in MakeOptions.
std::shared_ptr<layers::Model> make_model(const plan::Plan& plan, const MakeModel& make = {},
                                          c10::Device device = c10::kCPU,
                                          const ModelAxes& axes = {},
                                          std::vector<layout::Range> layers = {});

/// The scopes around each layer of `model` in training: recomputation, if configured.
std::vector<layers::LayerScope> training_scopes(const plan::Config& config,
                                                const layers::Model& model);

int64_t buffer_bytes(const layers::Model& model);

}  // namespace hanji::train
