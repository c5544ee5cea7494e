#pragma once

#include <optional>
#include <string>

#include "hanji/plan/load_config.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// Whether a job will claim its folder; if so, a folder with contents is a mistake.
enum class FolderUse : bool { kNone, kClaim };

/// A configuration after loading, and the data that it names.
struct CheckedJob {
  plan::LoadedConfig loaded;       ///< With the mistakes of the data and the folder.
  std::optional<Dataset> dataset;  ///< Open, unless it or one of its keys is a mistake.
  Code code = Code::kOk;           ///< kInvalidArgument for mistakes; kCorrupt if the only one is
                                   ///< a token file that fails its checks.
  std::string initial = {};        ///< What is read of model.init; empty: nothing.
};

/// Checks the files and devices of the keys: opens the data, compares it with the model's sizes, and
/// checks the GPUs of the ranks and the folder of the run. Adds each problem to the mistakes, with key
/// and place. Creates nothing.
///
/// `own`: the workload of a program, whose data no key names.
/// Cost    that of open_dataset(), and of check_vocabulary() if model.vocabulary is set.
CheckedJob check_job(plan::LoadedConfig loaded, FolderUse use, const Workload* own = nullptr);

/// What starts the ranks of a job.
enum class StartedBy : bool { kUs, kLauncher };

/// Adds a mistake if comm.engine does not support ranks started by `by`, or this build lacks it.
void check_engine(plan::LoadedConfig& loaded, StartedBy by);

}  // namespace hanji::train
