#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>

#include "hanji/plan/plan.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// Connects to the ranks that launch_options() started; step lists are chosen by the plan's rates.
/// Errors  throws as world::connect(), and kCorrupt for an invalid plan.
world::World meet();

/// Notifies all ranks of the exception that is being handled, and throws it again. Of a verb of hanji, which
/// prints it: what ended the job elsewhere stands in this rank's log already and is not repeated.
[[noreturn]] void fail_verb(const world::World& world);

/// Replaces the options that the plan determines.
comm::GroupOptions follow_plan(const plan::Plan& plan, comm::GroupOptions options);

/// The device of this rank: the CPU, or the GPU with its index on the host, which becomes the current
/// device of this thread, with repeatable kernels if the plan requires them.
/// Errors  throws Error(kUnsupported) without a GPU, Error(kInvalidArgument) for too few.
c10::Device take_device(const world::World& world, const plan::Plan& plan);

/// Makes a group of the ranks of `met`, all of `world`, with the engine of the plan: on one host that
/// engine; on several, shared memory within each host and that engine between them. NCCL connects all
/// ranks, for tensors of `device`; it receives the plan's variables and logs in `log_folder`, one file
/// per rank.
/// Errors  throws Error(kUnsupported) for an engine that this launcher or build does not have, or that
///         connects hosts if there is only one; as nccl::make_group().
comm::Group training_group(const world::World& world, const comm::Group& met,
                           const plan::Plan& plan, c10::Device device = c10::kCPU,
                           const std::filesystem::path& log_folder = {});

/// Describes this rank's group by the log of NCCL in `log_folder`, in a line.
std::string describe_nccl(int rank, const std::filesystem::path& log_folder);

}  // namespace hanji::train
