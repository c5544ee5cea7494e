#pragma once

#include "hanji/plan/internal/json_fields.h"
#include "hanji/plan/model_facts.h"
#include "hanji/plan/operation_times.h"

namespace hanji::plan {

base::Json to_value(const ModelFacts& facts);
/// The reader's mistakes are in `fields`.
ModelFacts read_model_facts(JsonFields& fields);

base::Json to_value(const OperationTimes& times);
/// The reader's mistakes are in `fields`.
OperationTimes read_operation_times(JsonFields& fields);

}  // namespace hanji::plan
