#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hanji/plan/load_config.h"

namespace hanji::plan {

struct ModelFamily;

using Found = std::vector<Contradiction>;

/// Of the keys of [data].
void check_data(const Config& config, Found& found);
/// Of the model with its sizes, its data, and what it computes in.
void check_model(const Config& config, Found& found);
/// Of the number of ranks and their shares of a batch.
void check_ranks(const Config& config, Found& found);
/// Of the degrees of the mesh, and what they cut. `cut_axes`: axes that the model is cut along beside
/// those of its family.
void check_mesh(const Config& config, std::span<const std::string_view> cut_axes, Found& found);
/// Of mesh.cp and parallel.context.
void check_context(const Config& config, Found& found);
/// Of mesh.pp and the keys of [pipeline].
void check_stages(const Config& config, Found& found);
/// Of mesh.axial and parallel.triangle.
void check_axial(const Config& config, Found& found);

/// Of an axis that cuts activations, `what` they are of: its ranks are CPUs that share memory.
void check_shares_memory(const Config& config, std::string_view axis, int64_t degree,
                         std::string_view what, Found& found);

/// Whether one of the family's axes beside those of data is this one.
bool is_cut_by(const ModelFamily& family, std::string_view axis);

}  // namespace hanji::plan
