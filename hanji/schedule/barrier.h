#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// No rank leaves before every rank has come: one sync.
StepList barrier(int ranks);

}  // namespace hanji::schedule
