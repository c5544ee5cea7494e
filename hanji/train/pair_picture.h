#pragma once

#include <string>

#include "hanji/train/dataset.h"
#include "hanji/train/job.h"

namespace hanji::train {

/// An SVG of the first validation sample of a job of pairs: what its model finds, and the truth. `row_blocks`:
/// train.cuts.tokens of the job.
///
/// Order   a collective of the ranks that have a part of the model.
std::string pair_picture(const Job& job, const Dataset& dataset, int row_blocks);

}  // namespace hanji::train
