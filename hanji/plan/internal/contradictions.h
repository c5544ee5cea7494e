#pragma once

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
/// Of mesh.cp and parallel.context.
void check_context(const Config& config, Found& found);
/// Of mesh.pp and the keys of [pipeline].
void check_stages(const Config& config, Found& found);
/// Of mesh.axial and parallel.triangle.
void check_axial(const Config& config, Found& found);

/// Whether one of the family's axes beside those of data is this one.
bool is_cut_by(const ModelFamily& family, std::string_view axis);

}  // namespace hanji::plan
