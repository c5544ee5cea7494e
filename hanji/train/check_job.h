#pragma once

#include <optional>

#include "hanji/plan/load_config.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// Whether a job is about to claim its folder; then one that holds something is a mistake.
enum class FolderUse : bool { kNone, kClaim };

/// A configuration that was read, and the data that it names.
struct CheckedJob {
  plan::LoadedConfig loaded;       ///< Its mistakes: those of the data and the folder as well.
  std::optional<Dataset> dataset;  ///< Open, unless it or a key that describes it is mistaken.
  Code code = Code::kOk;           ///< kInvalidArgument for mistakes; kCorrupt if the only one is
                                   ///< that a token file is not what it claims to be.
};

/// Looks at what the keys point to: opens the data, holds it against the model's sizes, and looks
/// at the GPUs that ranks are to compute on and at the folder of the run. Adds what is wrong to the
/// mistakes, with key and place; makes nothing.
///
/// `own`: a program's, whose data no key names.
/// Cost    open_dataset()'s, and check_vocabulary()'s where model.vocabulary is set.
CheckedJob check_job(plan::LoadedConfig loaded, FolderUse use, const Workload* own = nullptr);

/// Who starts the ranks of a job.
enum class StartedBy : bool { kUs, kLauncher };

/// Adds it to the mistakes if ranks so started cannot have comm.engine, or this build has not.
void check_engine(plan::LoadedConfig& loaded, StartedBy by);

}  // namespace hanji::train
