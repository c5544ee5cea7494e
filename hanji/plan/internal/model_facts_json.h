#pragma once

#include "hanji/plan/internal/json_fields.h"
#include "hanji/plan/model_facts.h"

namespace hanji::plan {

base::Json to_value(const ModelFacts& facts);
/// The reader's mistakes are in `fields`.
ModelFacts read_model_facts(JsonFields& fields);

}  // namespace hanji::plan
