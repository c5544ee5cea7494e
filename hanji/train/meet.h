#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>

#include "hanji/plan/plan.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// Meets the ranks that launch_options() started; step lists are priced with the plan's rates.
/// Errors  throws as world::connect(), and kCorrupt for a plan that is none.
world::World meet();

/// What a group must keep for the plan, in place of what `options` say.
comm::GroupOptions follow_plan(const plan::Plan& plan, comm::GroupOptions options);

/// Where this rank computes: the CPU, or the GPU with its index on the host, which becomes this
/// thread's own, with the promise of bits that the plan makes.
/// Errors  throws Error(kUnsupported) where there is no GPU, Error(kInvalidArgument) for too few.
c10::Device take_device(const world::World& world, const plan::Plan& plan);

/// The ranks of `met`, all of `world`, over the engine that the plan names: on one host that engine
/// itself, over several shared memory inside each and that engine between them. NCCL joins all of
/// them, for tensors of `device`; it gets the plan's variables, and logs in `log_folder`, one file
/// for each rank.
/// Errors  throws Error(kUnsupported) for an engine that this launcher or build has not, or that
///         joins hosts where there is one; as nccl::make_group().
comm::Group training_group(const world::World& world, const comm::Group& met,
                           const plan::Plan& plan, c10::Device device = c10::kCPU,
                           const std::filesystem::path& log_folder = {});

/// What the log of NCCL in `log_folder` tells of this rank's group, in a line.
std::string describe_nccl(int rank, const std::filesystem::path& log_folder);

}  // namespace hanji::train
