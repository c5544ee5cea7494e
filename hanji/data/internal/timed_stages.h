#pragma once

#include <string>
#include <vector>

#include "hanji/data/internal/image_view.h"
#include "hanji/plan/image_stages.h"

namespace hanji::data::internal {

/// A part of an image's sample, as it is timed: the sample by these stages, until it is made so far.
struct TimedStage {
  std::string name;
  plan::ImageStages stages;  ///< This one and those before it.
  MadeUntil until = MadeUntil::kWritten;
  bool changes_tile = false;  ///< By a stage of the program's own.
};

/// What is done beside the stages that have names.
struct UnnamedStages {
  bool decodes = false;
  bool changes_tile = false;
};

/// The parts of a sample in the order in which they are done. Their crops are the same ones.
std::vector<TimedStage> timed_stages(const plan::ImageStages& all, const UnnamedStages& unnamed);

}  // namespace hanji::data::internal
