#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/data/source.h"
#include "hanji/models/module_model.h"
#include "hanji/plan/config.h"
#include "hanji/train/dataset.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// A program's own model.
struct OwnModel {
  std::function<models::LayeredModule()> make;  ///< The same module each time.
  models::ModuleLoss loss;
};

struct TrainOptions {
  /// The keys of `hanji train`, without those of [model] and [data]; a key with its default value
  /// counts as not set. run.ranks are the ranks of the world.
  plan::Config config = {};
  std::vector<std::string> assignments = {};  ///< KEY=VALUE, overrides: a program's arguments.
  bool resume = false;                        ///< Resumes the run in config.run.out, if it exists.
  /// Receives the output of `hanji train`, on rank 0; empty: no output.
  std::function<void(std::string_view)> write = {};
};

/// Identical on all ranks.
struct TrainedModel {
  std::filesystem::path out;    ///< The folder of the run, on the host of rank 0.
  std::filesystem::path model;  ///< Parameters and buffers after the last step, for hanji::load().
  int stop_signal = 0;          ///< The signal that ended the run early, after a checkpoint; or 0.
};

/// Identical on all ranks.
struct VerifiedModel {
  std::filesystem::path certificate;  ///< certificate.json in the folder of the verification.
  bool equal = false;                 ///< The ranks had the bits of one process after every step.
};

/// The workload of a program's model and source; the source outlives it.
Workload own_workload(const OwnModel& model, const data::Source& source);

/// train_model() for a module that is split into layers.
TrainedModel train_own_model(world::World& world, const OwnModel& model, const data::Source& source,
                             const TrainOptions& options);

/// verify_model() for a module that is split into layers.
VerifiedModel verify_own_model(world::World& world, const OwnModel& model,
                               const data::Source& source, const TrainOptions& options);

/// Trains a torch::nn module as `hanji train` trains its own models: makes and writes the plan, trains
/// by AdamW with any strategy of parallel.data, evaluates, logs, traces, saves checkpoints, and writes
/// the summary.
///
/// `make` returns the module: its holder, or a std::shared_ptr to it. Each member of a Sequential is a
/// layer, which is recomputed and planned separately; any other module is one layer. `make` is called
/// several times under hanji::deferred(), so initial values depend only on train.seed.
/// `loss` returns the sum of the losses of some samples, and their number; the sum over the global
/// batch is divided once.
/// Result  as `hanji train`: with train.bits = stable the same bits for any number of ranks and any
///         strategy. torch's dropout uses a generator that is seeded before each layer of each forward;
///         running statistics are updated once per step, by the mean over its forwards.
/// Order   collective. `world` and `source` outlive the call; ranks see the same samples.
/// Cost    at the start: the module is made twice on rank 0, once on the other ranks, and forwards and
///         backwards of a few samples run to predict memory and time.
/// Errors  throws kInvalidArgument with all mistakes of the configuration; as hanji::deferred(),
///         models::ModuleModel and the module itself throw. All ranks fail.
/// Thread  the main thread of the rank. Stop signals are blocked from here on; they end the run
///         with a checkpoint unless another thread of the program receives them. libtorch keeps the
///         plan's number of threads and kernels.
template <class Make>
TrainedModel train_model(world::World& world, const Make& make, const models::ModuleLoss& loss,
                         const data::Source& source, const TrainOptions& options = {}) {
  return train_own_model(world, {[make] { return models::layers_of(make()); }, loss}, source,
                         options);
}

/// Compares the ranks of `world` with one process bit for bit, as `hanji verify` does, on the job that
/// train_model() would run with these arguments: every gradient, parameter, buffer and moment after
/// every step; 20 steps if train.steps has its default. Rank 0 then runs the job as one process.
///
/// Result  options.write receives the report; run.out has certificate.json and observed/, as written
///         by `hanji verify`. Nothing is trained further or saved.
/// Order   collective, on one host.
/// Errors  as train_model(); kUnsupported for train.bits = fast, GPUs and several hosts;
///         kInvalidArgument for options.resume, and if a signal ends the job early.
/// Thread  as train_model().
template <class Make>
VerifiedModel verify_model(world::World& world, const Make& make, const models::ModuleLoss& loss,
                           const data::Source& source, const TrainOptions& options = {}) {
  return verify_own_model(world, {[make] { return models::layers_of(make()); }, loss}, source,
                          options);
}

}  // namespace hanji::train
