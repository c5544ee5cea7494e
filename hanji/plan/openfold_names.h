#pragma once

#include <string>
#include <vector>

#include "hanji/plan/model_family.h"

namespace hanji::plan {

/// The parameters of an Evoformer that a tensor of a checkpoint has, by its name there: one of OpenFold's, also
/// before its version 2 ("core.tri_mul_out"), of its fused projections ("linear_ab_p": a, then b) and of
/// DeepFold ("pair_core", columns without "_msa_att"), behind "module." and "model." of their trainers.
///
/// Result  the name itself where it is none of these.
/// Source  aqlaboratory/openfold, openfold/utils/import_weights.py, convert_deprecated_v1_keys().
std::vector<NamedRows> renamed_of_openfold(std::string name);

}  // namespace hanji::plan
