#pragma once

#include "hanji/plan/internal/json_fields.h"
#include "hanji/plan/operation_times.h"

namespace hanji::plan {

base::Json to_value(const OperationTimes& times);
/// The reader's mistakes are in `fields`.
OperationTimes read_operation_times(JsonFields& fields);

}  // namespace hanji::plan
