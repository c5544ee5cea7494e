#pragma once

#include "hanji/plan/named_model.h"
#include "hanji/plan/pair_capacity.h"
#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"
#include "hanji/train/joined_job.h"
#include "hanji/train/timing_progress.h"

namespace hanji::train {

/// The kind of measured_once() that chooses kernels; its keys name the build ("build").
inline constexpr std::string_view kKernelChoices = "kernels";

/// Everything that is decided before anything starts: reads the machine, measures memory and
/// kernels (once per machine; later runs read the cache folder, see measured_once.h), and plans. Jobs on GPUs
/// are timed there, as gpu_times.h says.
///
/// `started`: ranks that are there already, each pinned or not by what started them: the machine that
/// this one sees may be its own cores only. Memory and kernels are measured for the ranks of this host;
/// config.run.ranks says how many there are.
/// Cost    some tenths of a second where nothing was measured yet.
/// Errors  as plan::make_plan().
Result<plan::Plan> prepare(const plan::Config& config, const Workload& workload,
                           const std::optional<StartedRanks>& started = {},
                           const TimingProgress& on_timing = {});

/// run.ranks; or without it, of a mesh that is dp alone, as many as train.split has shares, or else one per usable
/// core or GPU of `hosts` hosts like this one, as far as the batch has grains for them.
/// Errors  those of reading the machine.
Result<int64_t> ranks_of_job(const plan::Config& config, int hosts = 1);

/// The same for ranks that a launcher would start on `hosts` hosts like this one, whose link nobody
/// has measured.
/// Errors  as plan::make_plan(); kInvalidArgument for fewer ranks than hosts.
Result<plan::Plan> prepare_on_hosts(plan::Config config, const Workload& workload, int hosts,
                                    const TimingProgress& on_timing = {});

/// What the layers of the model are, where its family cannot say: counted once per machine and job; of
/// a program's own model each time, as no key tells two of them apart.
/// Errors  throws those of the model.
Result<std::optional<plan::ModelFacts>> facts_of_model(const plan::Config& config,
                                                       const Workload& workload);

/// The same with and without recomputation, of a preset that `hanji plan --model` names.
/// Errors  as open_dataset() besides.
Result<plan::CountedModel> count_preset(plan::Config config);

/// A resolved model of pairs on 1, 2, 4 ... and `ranks` ranks that share out its rows, of one of which each is counted
/// without memory, so that its sizes need not fit here.
std::vector<plan::PairRanks> count_pairs(const plan::Config& config, int ranks);

/// The GPUs that ranks may take, on this host or on all that `started` names, each of which is taken
/// to have as many as this one.
/// Errors  as compute::check_gpus().
Result<plan::GpuFacts> count_gpus(const std::optional<StartedRanks>& started = std::nullopt);

/// The same, opening the data that `config` names. Errors: as open_dataset() besides.
Result<plan::Plan> prepare(const plan::Config& config);

/// Times the job's operations with the inputs' kernels, as often as facts_of_model() counts; `draft`
/// is the plan of the inputs, `busy_ranks` are those of a host.
/// Errors  those of the model.
Status add_times(plan::PlanInputs& inputs, const plan::Plan& draft, const Workload& workload,
                 int busy_ranks, const TimingProgress& on_timing = {});

/// The same on this host's first GPU, by the process that gpu_times.h says; `draft` has the kernels of `inputs`.
/// Timing that fails is a warning and leaves a plan without times.
Status add_gpu_times(plan::PlanInputs& inputs, const plan::Plan& draft, const Workload& workload,
                     const std::optional<StartedRanks>& started);

/// Decides parallel.moves and parallel.triangle by the inputs' rates where they are auto and `draft`, their
/// plan, has the choice. Where that is not how the model was counted, it is counted anew, and the draft made
/// of it.
/// Errors  as plan::make_plan() and those of the model.
Status decide_moves(plan::PlanInputs& inputs, const Workload& workload, plan::Plan& draft);

/// Decides parallel.context by the inputs' rates where it is auto and both ways serve; else as decide_moves().
Status decide_context(plan::PlanInputs& inputs, const Workload& workload, plan::Plan& draft);

/// The rates of `ranks` processes that exchange data on this machine, measured now.
Result<cost::Rates> measure_rates(const topology::Machine& machine, int ranks);

}  // namespace hanji::train
