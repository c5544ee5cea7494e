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
  /// The keys of `hanji train`, but those of [model] and [data]; what has its default counts as not
  /// set. run.ranks are the ranks of the world.
  plan::Config config = {};
  std::vector<std::string> assignments = {};  ///< KEY=VALUE, stronger: a program's arguments.
  bool resume = false;  ///< Goes on with the run in config.run.out, if there is one.
  /// Gets what `hanji train` prints, on rank 0; empty: nothing is printed.
  std::function<void(std::string_view)> write = {};
};

/// Identical on all ranks.
struct TrainedModel {
  std::filesystem::path out;    ///< The folder of the run, on the host of rank 0.
  std::filesystem::path model;  ///< Parameters and buffers after the last step, for hanji::load().
  int stop_signal = 0;          ///< That ended the run early, after a checkpoint; or 0.
};

/// The workload of a program's model and source, which outlives it.
Workload own_workload(const OwnModel& model, const data::Source& source);

/// train_model() of a maker whose module is told apart into layers.
TrainedModel train_own_model(world::World& world, const OwnModel& model, const data::Source& source,
                             const TrainOptions& options);

/// Trains a torch::nn module as `hanji train` trains its own models: plans and writes the plan, steps
/// by AdamW with every strategy of parallel.data, evaluates, logs, traces, saves checkpoints, and
/// sums up.
///
/// `make` returns the module: its holder, or a std::shared_ptr to it. Of a Sequential each member is
/// a layer, which recomputation repeats and the plan counts by itself; any other module is one. It
/// is called several times under hanji::deferred(), so initial values follow from train.seed alone.
/// `loss` maps the output and the targets of some samples to the sum of their losses, and how many
/// losses these are; what is minimised is the sum over the global batch, divided once.
/// Result  as `hanji train`: with train.bits = stable the same bits for any number of ranks and any
///         strategy. torch's dropout draws from a generator that is seeded before each layer of each
///         forward; running statistics move once per step, by the mean over its forwards.
/// Order   collective. `world` and `source` outlive the call; ranks see the same samples.
/// Cost    beside training, at the start: the module made twice on rank 0, once elsewhere, and
///         forwards and backwards of a few samples, from which memory and time are planned.
/// Errors  throws kInvalidArgument with all mistakes of the configuration; as hanji::deferred(),
///         models::ModuleModel and the module itself throw. All ranks fail.
/// Thread  the rank's own. INT, TERM and USR1 are blocked from here on; they end the run with a
///         checkpoint where no other thread of the program takes them. libtorch keeps the plan's
///         number of threads and kernels.
template <class Make>
TrainedModel train_model(world::World& world, const Make& make, const models::ModuleLoss& loss,
                         const data::Source& source, const TrainOptions& options = {}) {
  return train_own_model(world, {[make] { return models::layers_of(make()); }, loss}, source,
                         options);
}

}  // namespace hanji::train
