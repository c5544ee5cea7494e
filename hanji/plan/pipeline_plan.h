#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"
#include "hanji/plan/config.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/predict.h"
#include "hanji/plan/stage_times.h"
#include "hanji/schedule/pipeline_schedule.h"
#include "hanji/schedule/pipeline_timeline.h"

namespace hanji::plan {

struct Plan;

/// The schedule in a file, as `hanji simulate --schedule` and pipeline.schedule name it.
/// Errors  invalid_argument of a name without '.' and '/', with the schedules that there are; as
///         base::read_file(); as schedule::pipeline_from_csv(), each line behind the name.
Result<schedule::PipelineSchedule> read_pipeline(const std::string& file);

/// The stages of all ranks of mesh.pp.
int num_stages(const Config& config);

/// Micro-batches of a data coordinate that a configuration asks for: pipeline.micro_batches, those of
/// its file, or four per rank of mesh.pp.
int64_t micro_batches_asked(const Config& config);

/// The layers of each stage of a resolved plan; without a pipeline one stage of all layers.
std::vector<layout::Range> stages_of(const Plan& plan);

/// Which of them leave gradients of weights to backward_weight.
std::vector<bool> split_stages(const Plan& plan);

/// The rank along mesh.pp of each stage of a checked plan.
std::vector<int> ranks_of_stages(const Plan& plan);

/// What all ranks of mesh.pp do in a step of so many micro-batches.
/// Errors  as schedule::pipeline_schedule(); invalid_argument for another number than a file has.
Result<schedule::PipelineSchedule> schedule_of(const Config& config, int64_t num_micro_batches);

/// What the rank of a pipeline has of a model: the layers of its stages, with the parameters that they
/// read. Without a pipeline the model.
ModelFacts facts_of_rank(const Plan& plan, int rank);

/// What a step of the plan's pipeline is priced from; nothing without one.
PipelineFacts pipeline_facts(const Plan& plan);

/// Micro-batches of the data coordinate with most.
int64_t most_micro_batches(const Plan& plan);

/// A data coordinate's step in predicted times of its stages, and of messages between hosts.
schedule::PipelineTimeline pipeline_timeline(const Plan& plan, int data_coordinate);

/// Checks stages and schedules of a plan whose shares, micro-batch and pipeline.cut are decided.
/// Errors  invalid_argument with all mistakes, a line each.
Status check_pipeline(const Plan& plan);

/// Of the plan's table: the schedule and its bubble, then a row for each stage.
std::string describe_pipeline(const Plan& plan);

}  // namespace hanji::plan
