#pragma once

#include <functional>
#include <string>

#include "hanji/plan/mesh_choices.h"
#include "hanji/train/check_job.h"

namespace hanji::train {

/// Plans a job on every mesh of its ranks: pp x tp, the others dp or fsdp as its parallel.data cuts states.
///
/// `load`: the job with a mesh, as --mesh takes it; "": as it is, with the ranks of its machine.
/// `on_mesh`: called before each plan, which may time operations for seconds.
/// Result  what the plans predict; meshes that they refuse stand with the first reason.
/// Cost    that of prepare() for each mesh.
/// Errors  as check_job() and prepare() without a mesh.
Result<plan::MeshTable> plan_meshes(
    const std::function<plan::LoadedConfig(const std::string& mesh)>& load,
    const std::function<void(const std::string& mesh)>& on_mesh);

}  // namespace hanji::train
