#include "hanji/train/rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/memory_headroom.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/checkpoint/saver.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/heap.h"
#include "hanji/comm/heap_peaks.h"
#include "hanji/compute/apply.h"
#include "hanji/compute/memory.h"
#include "hanji/data/source.h"
#include "hanji/layers/model.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/profiled_steps.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/report/run_report.h"
#include "hanji/trace/chrome.h"
#include "hanji/trace/ranges.h"
#include "hanji/train/generate.h"
#include "hanji/train/host_clocks.h"
#include "hanji/train/loop.h"
#include "hanji/train/make_model.h"
#include "hanji/train/meet.h"
#include "hanji/train/operation_profile.h"
#include "hanji/train/pair_picture.h"
#include "hanji/train/run_folder.h"
#include "hanji/train/save_log.h"
#include "hanji/train/state.h"
#include "hanji/train/step_accounts.h"
#include "hanji/train/summary.h"

namespace hanji::train {
namespace {

checkpoint::SaveOptions save_options_of(const plan::Config& config,
                                        const std::filesystem::path& out) {
  checkpoint::SaveOptions options;
  options.folder = out / "checkpoints";
  options.keep = static_cast<int>(config.checkpoint.keep);
  options.copy_bytes = plan::most_copied(config.offload);
  return options;
}

/// One rank's run, in the order in which it happens.
class RankRun {
 public:
  RankRun(const RankOptions& options, world::World& world, const comm::Group& group,
          const plan::Plan& plan, StopSignal& stop)
      : options_(options),
        world_(world),
        group_(group),
        stop_(stop),
        plan_(plan),
        workload_(options.own ? *options.own : Workload{open_dataset(plan_.config).or_throw()}),
        saver_(save_options_of(plan_.config, options.out), world.recorder()) {}

  RankOutcome run() {
    compute::apply(plan_.kernels, plan_.threads);
    compute::keep_freed_memory();
    began_with_ = base::process_memory().or_throw();
    compare_data();
    compare_folders();
    Job job = assemble(plan_, group_, workload_.make);
    if (is_first() && group_.engine() == "nccl") {
      options_.output.write(describe_nccl(world_.rank(), options_.out / "logs") + "\n");
    }
    // Held until this process ends: a run that goes on waits for it before it touches a file.
    if (is_first()) lock_.emplace(lock_checkpoints(options_.out).or_throw());
    const int64_t first_step = resume(job);
    if (is_first()) {
      log_.emplace(RunLog::open(options_.out, plan_, first_step, options_.output).or_throw());
    }
    watch_saves(job, first_step);
    if (const Status tool = trace::load_range_tool(); !tool.ok()) warn(first_step, tool.message());
    StepAccounts accounts(job, plan_, options_.out, first_step,
                          [&](const std::string& what) { warn(first_step, what); });
    std::optional<OperationProfile> profile = begin_profile(job, first_step);
    const HostClocks clocks(world_.group(), world_.ranks_per_node());
    LoopOutcome outcome = run_loop(
        job, {.plan = plan_,
              .dataset = dataset_,
              .memory = memory_,
              .stop = stop_,
              .log = log_ ? &*log_ : nullptr,
              .accounts = &accounts,
              .profile = profile ? &*profile : nullptr,
              .first_step = first_step,
              .save = [&](int64_t steps_done, double loss) { save(job, steps_done, loss); },
              .before_update =
                  [&] {
                    saver_.wait_copied();
                    save_log_->add(saver_.poll());
                  }});
    if (profile) {
      base::throw_if_error(profile->write(options_.out, outcome.seconds, first_step));
    }
    add_history(job, outcome);
    finish(job, outcome, clocks);
    return {.stop_signal = outcome.stop_signal};
  }

 private:
  bool is_first() const { return world_.rank() == 0; }
  /// The first rank, and those that have the other parts of its model.
  bool has_firsts_model(const Job& job) const {
    const bool has_part = job.cut || job.stages || job.is_axial;
    return is_first() || (has_part && plan_.mesh.data_coordinate(world_.rank()) == 0);
  }

  /// Of several hosts each one reads its own files.
  void compare_data() {
    if (world_.num_nodes() == 1) return;
    const std::string words = dataset_.vocabulary ? dataset_.vocabulary->to_json() : "";
    const auto mine = static_cast<int64_t>(dataset_.samples->checksum() ^
                                           base::xxh3(std::as_bytes(std::span(words))));
    const std::vector<int64_t> all = gather(mine, "checksums of the data");
    for (int rank = 1; rank < world_.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw Error(base::mismatch(fmt::format(
          "{}: rank {} has read data with checksum {:016x} and rank 0 with {:016x}; every host "
          "needs the same file at that path",
          dataset_.name, rank, static_cast<uint64_t>(all[rank]), static_cast<uint64_t>(all[0]))));
    }
  }

  /// What lies in parts on several hosts, so that they write or read one checkpoint; empty: nothing.
  std::string parts_on_hosts() const {
    for (const std::string_view axis : plan::axes_over_hosts(plan_)) {
      return fmt::format("mesh.{} = {}: its ranks", axis, plan_.mesh.degree(axis));
    }
    const plan::Sharding data = plan_.config.parallel.data;
    if (plan_.mesh.degree("pp") > 1) {
      return fmt::format("mesh.pp = {}: stages", plan_.mesh.degree("pp"));
    }
    return plan::shards_span_hosts(plan_) ? fmt::format("parallel.data = {}: shards", name_of(data))
                                          : "";
  }

  void compare_folders() {
    const std::string parts = parts_on_hosts();
    if (world_.num_nodes() == 1 || parts.empty()) return;
    constexpr size_t kMaxPlanBytes = size_t{64} << 20;
    const std::filesystem::path path = options_.out / "plan.json";
    const auto seen = base::read_file(path, kMaxPlanBytes);
    const bool is_there = seen.ok() && *seen == plan::to_json(plan_);
    const std::vector<int64_t> all = gather(is_there ? 1 : 0, "folders of the run");
    std::vector<int> without;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (all[rank] == 0) without.push_back(rank);
    }
    if (without.empty()) return;
    throw Error(base::invalid_argument(fmt::format(
        "{} on {} share one checkpoint, but ranks {} do not see {} of rank 0; give --out a "
        "folder that all hosts share",
        parts, base::counted(world_.num_nodes(), "host"), fmt::join(without, ", "),
        path.string())));
  }

  /// Result  the steps that an earlier run has done.
  int64_t resume(Job& job) {
    if (options_.resume_from.empty()) return 0;
    // The checkpoint may lie on the first host alone; a part has no other source.
    const bool is_source = (job.stages && plan_.mesh.coordinate(world_.rank(), "dp") == 0) ||
                           job.strategy->sharers() != nullptr ||
                           (job.context && plan_.mesh.data_coordinate(world_.rank()) == 0);
    const bool here =
        world_.rank() < world_.ranks_per_node()[0] || has_firsts_model(job) || is_source;
    int64_t steps = here ? restore(job, options_.resume_from).or_throw() : 0;
    const comm::Group& group = world_.group();
    comm::barrier(group, {.label = "restored"});
    if (world_.num_nodes() > 1) {
      steps = send_restored(job, steps);
      // Others read what their host's holder has written.
      comm::barrier(group, {.label = "resumed"});
    }
    check_parameters(job);
    return steps;
  }

  /// From the first host to all holders.
  int64_t send_restored(Job& job, int64_t steps) {
    const comm::Group& group = world_.group();
    at::Tensor counts = at::empty({2}, at::kLong);
    counts[0] = steps;
    counts[1] = job.strategy->state().num_updates;
    comm::broadcast(counts, 0, group, {.label = "steps done"}).wait();
    job.strategy->set_num_updates(counts[1].item<int64_t>());
    if (job.device.is_cpu()) {
      if (const auto* holders = job.strategy->holders()) send_state(job, *holders);
      // Every rank has its own buffers, in every strategy.
      for (const auto& item : job.model->named_buffers()) send(item.key(), item.value(), group);
    } else {
      send_state(job, job.cut ? job.data : group);
    }
    return counts[0].item<int64_t>();
  }

  /// Through the host, of a tensor on a GPU.
  static void send(const std::string& name, const at::Tensor& tensor, const comm::Group& group) {
    at::Tensor here = tensor.detach().cpu();
    comm::broadcast(here, 0, group, {.label = name}).wait();
    if (!tensor.is_cpu()) tensor.detach().copy_(here);
  }

  /// From the first rank of `group` to the others.
  static void send_state(Job& job, const comm::Group& group) {
    const JobView view = view_of(job);
    for (const auto& entries : {model_of(view), view.optimizer}) {
      for (const StateTensor& one : entries) send(one.name, one.tensor, group);
    }
  }

  /// None where train.profile names no step.
  std::optional<OperationProfile> begin_profile(Job& job, int64_t first_step) {
    const std::string& asked = plan_.config.train.profile;
    const layout::Range steps = plan::profiled_steps(asked).or_throw();
    if (steps.empty()) return std::nullopt;
    if (steps.begin < first_step && is_first()) {
      warn(first_step,
           fmt::format("train.profile \"{}\": steps up to {} were done before and are not profiled",
                       asked, std::min(first_step, steps.end)));
    }
    return std::make_optional<OperationProfile>(job, plan_, memory_);
  }

  /// The loop knows its own steps only; the log and the optimizer know those before.
  void add_history(const Job& job, LoopOutcome& outcome) const {
    outcome.num_skipped = outcome.steps_done - job.strategy->state().num_updates;
    if (!log_) return;
    const History& history = log_->history();
    if (std::ssize(outcome.seconds) == outcome.num_without_targets) {
      outcome.train_loss = history.train_loss;
    }
    outcome.num_without_targets += history.num_without_targets;
    if (outcome.validation_loss == 0) {
      outcome.validation_loss = history.validation_loss;
      outcome.validation_metric = history.validation_metric;
    }
    std::vector<StepSeconds> seconds;
    for (const LoggedStep& step : history.logged) {
      if (step.ranks != plan_.ranks) continue;
      seconds.push_back({.step = step.step, .data = step.data, .calls = step.calls});
    }
    outcome.seconds.insert(outcome.seconds.begin(), seconds.begin(), seconds.end());
  }

  /// Ranks write what they alone change; the disk works beside the next steps.
  void save(const Job& job, int64_t steps_done, double validation_loss) {
    const OwnState own = own_state(job);
    if (own.num_parts > 1 && !begin_save(job, steps_done)) return;
    if (!own.part) return;
    checkpoint::Manifest manifest{.step = steps_done};
    if (*own.part == 0) manifest = describe_state(plan_, dataset_, steps_done);
    if (validation_loss > 0) manifest.validation_loss = validation_loss;
    saver_.save(state_to_save(job), std::move(manifest),
                {.part = *own.part, .num_parts = own.num_parts, .record = place()});
  }

  /// Makes room for parts that several ranks write. Collective.
  bool begin_save(const Job& job, int64_t steps_done) {
    at::Tensor begun = at::empty({1}, at::kLong);
    if (is_first()) {
      begun[0] = saver_.begin(steps_done, size_of_state(job)).ok() ? 1 : 0;
    }
    comm::broadcast(begun, 0, world_.group(), {.label = "checkpoint"}).wait();
    return begun.item<int64_t>() == 1;
  }

  /// In the log of the run, or in that of this rank alone.
  void warn(int64_t step, const std::string& what) {
    if (log_) return log_->warning(step, what);
    if (options_.output.write) {
      options_.output.write(fmt::format("step {}  warning: {}\n", step, what));
    }
  }

  /// The first rank warns, of all parts; a full disk is known before the first step.
  void watch_saves(const Job& job, int64_t first_step) {
    save_log_.emplace(
        [this](int64_t step, const std::string& what) {
          if (is_first()) log_->warning(step, what);
        },
        first_step);
    if (!is_first()) return;
    checkpoint::SaveOptions options = save_options_of(plan_.config, options_.out);
    options.writer.num_parts = own_state(job).num_parts;
    const Status room = checkpoint::check_room(options_.out, options, size_of_state(job));
    if (!room.ok()) log_->warning(first_step, "no checkpoint can be saved now: " + room.message());
  }

  checkpoint::WriterRecord place() const {
    checkpoint::WriterRecord record{.rank = world_.rank()};
    for (const layout::Axis& axis : plan_.mesh.axes()) {
      record.coordinates[axis.name] = plan_.mesh.coordinate(world_.rank(), axis.name);
    }
    return record;
  }

  /// A resumed run's trace lies beside the earlier one's.
  std::filesystem::path trace_folder(const LoopOutcome& outcome) const {
    const std::filesystem::path folder = options_.out / "trace";
    return options_.resume_from.empty() ? folder
                                        : folder / fmt::format("until_{:08}", outcome.steps_done);
  }

  void finish(Job& job, const LoopOutcome& outcome, const HostClocks& clocks) {
    base::throw_if_error(save_log_->finish(saver_.wait()));
    const trace::ClockOffset clock = clocks.offset();
    if (world_.recorder()) {
      const std::filesystem::path folder = trace_folder(outcome);
      base::throw_if_error(base::make_directories(folder));
      base::throw_if_error(trace::write_chrome_trace(
          folder / fmt::format("rank.{}.json", world_.rank()), *world_.recorder(), clock));
    }
    if (plan_.hosts.several()) gather_accounts(world_.group(), options_.out);
    const int64_t copied = saver_.copy_bytes() + job.strategy->window_bytes();
    const std::vector<int64_t> peaks = gather(memory_.peak_bytes() + copied, "peaks");
    const std::vector<int64_t> device_peaks = gather(memory_.device().peak, "peaks of GPUs");
    const std::vector<int64_t> reserved = gather(memory_.device().reserved, "memory of GPUs");
    const int64_t resident = base::process_memory().or_throw().peak_bytes;
    const std::vector<int64_t> processes = gather(began_with_.private_bytes, "processes");
    const std::vector<int64_t> residents = gather(resident, "memory of processes");
    const std::vector<int64_t> wire = gather(outcome.wire_bytes_per_step, "bytes on the wire");
    const std::vector<int64_t> sent = gather(outcome.network_bytes_per_step, "bytes by messages");
    const std::vector<int64_t> skews = gather(skew_ns(outcome), "skew");
    const std::vector<plan::MemoryLine> memory = largest_of_ranks(counted_memory(job, outcome));
    std::optional<checkpoint::StateHashes> hashes;  // for which ranks gather parts
    if (has_firsts_model(job) || job.strategy->sharers()) hashes = hashes_of(job);
    if (is_first()) {
      write_summary(
          {.outcome = outcome,
           .metric_name = std::string(job.model->metric_name()),
           .timings = timings_of(outcome.seconds),
           .hashes = *std::move(hashes),
           .first_step_seconds = first_step_seconds(outcome),
           .peak_bytes = peaks,
           .gpu_peak_bytes = std::ranges::max(device_peaks),
           .gpu_reserved_bytes = std::ranges::max(reserved),
           .process_bytes = std::ranges::max(processes),
           .resident_bytes = std::ranges::max(residents),
           .wire_bytes_per_step = job.group.engine() == "shm"
                                      ? std::optional(std::reduce(wire.begin(), wire.end()))
                                      : std::nullopt,
           .network_bytes_per_step = std::reduce(sent.begin(), sent.end()),
           .skew_ns = skews,
           .memory = memory,
           .saves = saver_.times(),
           .num_failed_saves = save_log_->num_failed(),
           .history = log_->history()});
    }
    show_result(job);
  }

  void write_summary(const Measurement& measurement) {
    const Summary summary = summarise(plan_, dataset_, measurement);
    base::throw_if_error(base::write_file_atomic(options_.out / "summary.json", summary.json));
    std::string text = summary.text;
    const auto records = report::read_run(options_.out);
    if (records.ok()) text += report::verdict_lines(*records);
    if (!plan_.config.train.profile.empty()) {
      text += fmt::format("operations: hanji report {} --operations 0\n", options_.out.string());
    }
    options_.output.write(base::wrap(text, options_.output.columns, 2));
  }

  /// Of a step; -1: not told apart.
  static int64_t skew_ns(const LoopOutcome& outcome) {
    const auto calls = timings_of(outcome.seconds).calls;
    return calls ? std::llround(calls->skew * 1e9) : -1;
  }

  double first_step_seconds(const LoopOutcome& outcome) const {
    if (outcome.first_step_end_ns == 0) return 0;
    return static_cast<double>(outcome.first_step_end_ns - options_.started_ns) * 1e-9;
  }

  std::vector<int64_t> gather(int64_t value, std::string_view label) {
    const at::Tensor mine = at::full({1}, value, at::kLong);
    at::Tensor all = at::empty({world_.size()}, at::kLong);
    comm::all_gather(all, mine, world_.group(), {.label = label}).wait();
    const auto* values = all.const_data_ptr<int64_t>();
    return {values, values + world_.size()};
  }

  /// Private tensors by what they are for, and the heap by category: of units that were whole and flows
  /// that were under way the most at once.
  std::vector<plan::MemoryLine> counted_memory(const Job& job, const LoopOutcome& outcome) {
    std::vector<plan::MemoryLine> lines = job.strategy->private_memory();
    if (outcome.first_step_end_ns > 0) {
      lines.push_back({"activations", memory_.largest_pass().activations});
      lines.push_back({"workspace", memory_.largest_pass().workspace});
    }
    if (outcome.data_bytes > 0) lines.push_back({"data", outcome.data_bytes});
    if (outcome.batch_bytes > 0) lines.push_back({"batches", outcome.batch_bytes});
    if (const int64_t bytes = buffer_bytes(*job.model)) lines.push_back({"buffers", bytes});
    if (saver_.copy_bytes() > 0) lines.push_back({"checkpoint copy", saver_.copy_bytes()});
    for (const auto& [category, bytes] : comm::peak_usage(world_.heap())) {
      if (category == "data") continue;  // a peer may still map it
      lines.push_back({category, static_cast<int64_t>(bytes)});
    }
    return lines;
  }

  /// Of each category of the plan, where any rank has it.
  std::vector<plan::MemoryLine> largest_of_ranks(const std::vector<plan::MemoryLine>& own) {
    std::vector<plan::MemoryLine> most;
    for (const plan::MemoryLine& planned : plan::largest_lines(plan_)) {
      const auto found = std::ranges::find(own, planned.category, &plan::MemoryLine::category);
      const int64_t bytes =
          std::ranges::max(gather(found == own.end() ? -1 : found->bytes, planned.category));
      if (bytes >= 0) most.push_back({planned.category, bytes});
    }
    return most;
  }

  /// Collective: ranks that have no part of the first rank's model help to gather it.
  void show_result(const Job& job) {
    const bool are_pairs = plan::data_kind(plan_.config) == plan::DataKind::kPairs;
    if (!are_pairs && !dataset_.vocabulary) return;
    const layout::Range all{0, job.model->num_layers()};
    job.strategy->unshard(all);
    if (has_firsts_model(job)) are_pairs ? show_pairs(job) : show_sample(job);
    job.strategy->reshard(all);
  }

  /// Collective among the ranks that have a part of the first rank's model.
  void show_sample(const Job& job) {
    const auto text = generate_text(job, plan_, *dataset_.vocabulary, {});
    if (!text.ok() || !is_first()) return;
    options_.output.write(fmt::format("\nsample (more: hanji generate --checkpoint {}):\n{}\n",
                                      options_.out.string(), *text));
  }

  /// As show_sample().
  void show_pairs(const Job& job) {
    if (job.stages || dataset_.samples->num_validation() == 0) return;
    const std::string svg =
        pair_picture(job, dataset_, static_cast<int>(plan_.config.train.cuts.tokens));
    if (!is_first()) return;
    const std::filesystem::path path = options_.out / "pairs.svg";
    base::throw_if_error(base::write_file_atomic(path, svg));
    options_.output.write(fmt::format("\npairs of a validation sample: {}\n", path.string()));
  }

  const RankOptions& options_;
  world::World& world_;
  const comm::Group& group_;
  StopSignal& stop_;
  base::ProcessMemory began_with_;
  PrivateMemory memory_{world_.heap()};
  const plan::Plan& plan_;
  const Workload workload_;
  const Dataset& dataset_ = workload_.dataset;
  std::optional<base::FolderLock> lock_;
  checkpoint::Saver saver_;
  std::optional<RunLog> log_;
  std::optional<SaveLog> save_log_;
};

}  // namespace

RankOutcome run_plan(const RankOptions& options, world::World& world, const comm::Group& group,
                     const plan::Plan& plan, StopSignal& stop) {
  return RankRun(options, world, group, plan, stop).run();
}

RankOutcome run_rank(const RankOptions& options) {
  StopSignal stop = StopSignal::create().or_throw();
  world::World world = meet();
  try {
    const plan::Plan plan = plan::plan_from_json(world.plan_json()).or_throw();
    const comm::Group group =
        training_group(world, world.group(), plan, take_device(world, plan), options.out / "logs");
    return run_plan(options, world, group, plan, stop);
  } catch (...) {
    fail_verb(world);
  }
}

}  // namespace hanji::train
