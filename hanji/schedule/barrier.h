#pragma once

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// No rank leaves before every rank has come: one sync.
StepList barrier(int ranks);

/// The list behind one more sync: what it moves, it moves when every rank has come.
StepList meet_first(StepList list);

}  // namespace hanji::schedule
