#pragma once

#include <span>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/operation_times.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::plan {

/// Cuts consecutive layers into `num_stages` ranges, of which the longest takes as little time as
/// possible; of such cuts the one with the earliest stages shortest.
///
/// `seconds`: of each layer, at least one per stage.
/// Cost    O(stages layers^2).
std::vector<layout::Range> cut_stages(std::span<const double> seconds, int num_stages);

/// Whether backward_input of a stage of these layers leaves gradients of weights to backward_weight: one
/// of its layers can.
bool splits_backward(const ModelFacts& model, layout::Range layers);

/// Of one sample in each layer: of the operations that were timed, whose seconds they add up to; else estimates.
/// backward_weight is of the layers whose backward can be split. Every prediction of forwards and backwards is a
/// sum of these.
std::vector<schedule::StageSeconds> layer_times(const ModelFacts& model,
                                                const OperationTimes& times);
/// Forward and backward together.
std::vector<double> layer_seconds(const ModelFacts& model, const OperationTimes& times);

/// What recorded operations take in each layer of the model, by the layers that call them: OperationTimes::layers.
/// `timed`: all of `operations`, by their names, in any order.
std::vector<schedule::StageSeconds> sort_by_layers(const ModelFacts& model,
                                                   std::span<const Operation> operations,
                                                   std::span<const TimedOperation> timed);

/// Of a micro-batch of so many samples in each of `stages`. A stage that does not split computes all in
/// backward_input; one that does, all of layer 0 in backward_weight.
std::vector<schedule::StageSeconds> stage_times(const ModelFacts& model,
                                                const OperationTimes& times,
                                                std::span<const layout::Range> stages,
                                                double samples);

/// The same of `num_stages`, cut as a plan cuts them.
/// Errors  invalid_argument for more stages than layers.
Result<std::vector<schedule::StageSeconds>> stage_times(const ModelFacts& model,
                                                        const OperationTimes& times, int num_stages,
                                                        double samples);

}  // namespace hanji::plan
