#pragma once

#include <functional>
#include <optional>
#include <string>

#include "hanji/plan/mesh_choices.h"
#include "hanji/train/check_job.h"

namespace hanji::train {

/// Plans a job on every mesh of its ranks: pp and the axes that cut the model's layers, tp and cp of GPTs and axial of
/// pairs; the other ranks dp or fsdp by every parallel.data that cuts states, or by the job's own if it is set. Where ranks do not share parameters, stages gather them by
/// either parallel.reshard.
///
/// `load`: the job with flags of a choice; without any as it is, with the ranks of its machine.
/// `on_mesh`: called before each plan, which may time operations for seconds, with its flags.
/// Result  what the plans predict; meshes that they refuse stand with the first reason, those of one reason together.
/// Cost    that of prepare() for each mesh.
/// Errors  as check_job() of whatever no choice mends; invalid_argument for more ranks than a host runs, and for
///         a job that says a degree itself; that of prepare() where it refuses the only mesh.
Result<plan::MeshTable> plan_meshes(
    const std::function<plan::LoadedConfig(const std::optional<plan::MeshChoice>& choice)>& load,
    const std::function<void(const std::string& flags)>& on_mesh);

}  // namespace hanji::train
