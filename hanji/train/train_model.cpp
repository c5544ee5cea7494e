#include "hanji/train/train_model.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/checkpoint/export.h"
#include "hanji/checkpoint/load.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/share_text.h"
#include "hanji/data/batch.h"
#include "hanji/lens/deferred.h"
#include "hanji/models/make.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/schema.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/decide_job.h"
#include "hanji/train/verify.h"
#include "hanji/train/verify_rank.h"

namespace hanji::train {
namespace {

/// Batch normalisation takes more than one.
constexpr int64_t kProbedSamples = 2;

std::shared_ptr<layers::Model> make_own(const OwnModel& own, const data::Source& source,
                                        const plan::Config& config,
                                        const models::MakeOptions& options) {
  lens::Construction construction(static_cast<uint64_t>(config.train.seed));
  models::LayeredModule module = own.make();
  construction.finish(*module.root).materialise(options.device);
  layers::Batch probe;
  data::read_first(source, kProbedSamples, probe);
  const bool is_double = config.compute.dtype == plan::Precision::kFloat64;
  return std::make_shared<models::ModuleModel>(
      std::move(module), own.loss, is_double ? at::kDouble : at::kFloat, probe.to(options.device));
}

/// The last checkpoint's model as one file, merged from its parts.
std::filesystem::path export_model(const std::filesystem::path& out) {
  const checkpoint::Checkpoint last = checkpoint::load_checkpoint(out / "checkpoints").or_throw();
  std::filesystem::path model = out / "model.safetensors";
  std::filesystem::remove(model);  // of the run that this one goes on with
  checkpoint::export_tensors(last, {}, model).or_throw();
  return model;
}

/// What differs from its default was set, and is checked as if it had been written.
plan::LoadedConfig load_options(const TrainOptions& options, plan::ConfigSources sources) {
  sources.overrides.push_back({"model.preset=module", "train_model"});
  for (const plan::Key& key : plan::schema()) {
    const plan::Value value = key.get(options.config);
    if (value == key.get(plan::Config()) || key.name == "model.preset") continue;
    std::string text = plan::format_value(key, value);
    sources.overrides.push_back({std::string(key.name) + "=" + text, "TrainOptions"});
  }
  for (const std::string& one : options.assignments) sources.overrides.push_back({one});
  return plan::load_config(sources);
}

std::function<void(std::string_view)> output_of(const TrainOptions& options) {
  if (options.write) return options.write;
  return [](std::string_view) {};
}

/// Rank 0's job.
DecidedJob decide_own(const world::World& world, const MetRanks& met, const Workload& workload,
                      const TrainOptions& options, Purpose purpose = Purpose::kTrain) {
  StartedRanks started = started_ranks(world).or_throw();
  started.ranks_per_host = met.ranks_per_host;
  started.link = met.link;
  DecidedJob decided = decide_job(
      {.load =
           [&](plan::ConfigSources sources) { return load_options(options, std::move(sources)); },
       .purpose = purpose,
       .resume = options.resume,
       .started = started,
       .own = &workload,
       .print = output_of(options)});
  base::throw_if_error(plan::to_status(decided.checked.loaded.mistakes));
  return decided;
}

void check_verify_options(const world::World& world, const TrainOptions& options) {
  if (world.num_nodes() > 1) {
    throw Error(base::unsupported(fmt::format(
        "verify_model compares ranks of one host, but these are on {}; start them on one",
        world.num_nodes())));
  }
  if (!options.resume) return;
  throw Error(
      base::invalid_argument("verify_model runs a job from its first step, but "
                             "TrainOptions::resume is true; leave it out"));
}

/// Rank 0 compares; the other ranks run whenever it announces a run.
class RanksToVerify {
 public:
  RanksToVerify(const RankOptions& options, const comm::Group& group, const plan::Plan& plan)
      : options_(options), group_(group), plan_(plan), message_(at::zeros({4}, at::kLong)) {}

  bool verify() {
    if (group_.rank() != 0) return follow();
    const report::Certificate certificate =
        verify_job(plan_, *options_.own, options_.out, [&](const VerifiedRun& asked) {
          announce(kRun, asked);
          run();
        });
    announce(certificate.equal() ? kEqual : kDiffer, {plan_});
    options_.output.write(fmt::format("{}certificate  {}\n", report::describe(certificate),
                                      (options_.out / "certificate.json").string()));
    return certificate.equal();
  }

 private:
  static constexpr int64_t kRun = 0, kEqual = 1, kDiffer = 2;
  /// For the one process, which takes as long as all ranks together.
  static constexpr auto kDeadline = std::chrono::hours(24 * 30);

  bool follow() {
    for (announce(kRun, {plan_}); value(0) == kRun; announce(kRun, {plan_})) run();
    return value(0) == kEqual;
  }

  /// From rank 0 to all.
  void announce(int64_t what, const VerifiedRun& asked) {
    message_[0] = what;
    message_[1] = asked.keep ? asked.keep->step : -1;
    message_[2] = asked.keep ? asked.keep->rank : 0;
    message_[3] = std::ranges::find(axes(), asked.without, &layout::Axis::name) - axes().begin();
    comm::broadcast(message_, 0, group_, {.label = "run to verify", .deadline = kDeadline}).wait();
  }

  int64_t value(int64_t i) const { return message_[i].item<int64_t>(); }

  const std::vector<layout::Axis>& axes() const { return plan_.mesh.axes(); }

  void run() {
    const std::string without = value(3) < std::ssize(axes()) ? axes()[value(3)].name : "";
    VerifyRankOptions rank{.folder = observed_folder(options_.out, without),
                           .keep_rank = static_cast<int>(value(2))};
    if (value(1) >= 0) rank.keep_step = value(1);
    if (without.empty()) {
      observe_into(rank, plan_, *options_.own, group_);
    } else {
      run_first(plan::without_axis(plan_, without).or_throw(), rank);
    }
    comm::barrier(group_, {.label = "observed", .deadline = kDeadline});
  }

  /// On as many ranks as the plan has; the others wait.
  void run_first(const plan::Plan& plan, const VerifyRankOptions& rank) {
    std::vector<int> first, rest;
    for (int one = 0; one < group_.size(); ++one) (one < plan.ranks ? first : rest).push_back(one);
    const bool runs = group_.rank() < plan.ranks;
    const comm::Group group = group_.subgroup(runs ? first : rest, runs ? "verified" : "waiting");
    if (runs) observe_into(rank, plan, *options_.own, group);
  }

  const RankOptions& options_;
  const comm::Group& group_;
  const plan::Plan& plan_;
  at::Tensor message_;
};

}  // namespace

Workload own_workload(const OwnModel& model, const data::Source& source) {
  Workload workload;
  workload.dataset.samples = std::shared_ptr<const data::Source>(std::shared_ptr<void>(), &source);
  workload.dataset.num_ids = 1;
  workload.dataset.name = "the program's own source";
  workload.make = [model, &source](const plan::Config& config, const models::MakeOptions& options) {
    return make_own(model, source, config, options);
  };
  return workload;
}

TrainedModel train_own_model(world::World& world, const OwnModel& model, const data::Source& source,
                             const TrainOptions& options) {
  const Workload workload = own_workload(model, source);
  TrainedModel trained;
  const auto decide = [&](const MetRanks& met) {
    DecidedJob decided = decide_own(world, met, workload, options);
    trained.out = decided.checked.loaded.config.run.out;
    if (decided.job) trained.out = decided.job->out;
    return Decision{.exit_code = 0, .job = std::move(decided.job)};
  };
  const JoinedOutcome outcome = run_joined(world, decide,
                                           {.out = "",
                                            .started_ns = base::now_ns(),
                                            .output = {.write = output_of(options)},
                                            .own = &workload});
  trained.stop_signal = outcome.rank.stop_signal;
  if (world.rank() == 0) trained.model = export_model(trained.out);
  for (std::filesystem::path* path : {&trained.out, &trained.model}) {
    *path = comm::share_text(path->string(), world.group(), "files of the run");
  }
  return trained;
}

VerifiedModel verify_own_model(world::World& world, const OwnModel& model,
                               const data::Source& source, const TrainOptions& options) {
  check_verify_options(world, options);
  const Workload workload = own_workload(model, source);
  VerifiedModel verified;
  const auto decide = [&](const MetRanks& met) {
    return Decision{.exit_code = 0,
                    .job = decide_own(world, met, workload, options, Purpose::kVerify).job};
  };
  const auto run = [&](const RankOptions& rank, world::World&, const comm::Group& group,
                       const plan::Plan& plan, StopSignal&) {
    verified = {rank.out / "certificate.json", RanksToVerify(rank, group, plan).verify()};
    return RankOutcome{};
  };
  run_joined(world, decide, {.out = "", .output = {.write = output_of(options)}, .own = &workload},
             run);
  return verified;
}

}  // namespace hanji::train
