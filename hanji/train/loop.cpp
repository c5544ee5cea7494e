#include "hanji/train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/comm/heap.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/data/batch.h"
#include "hanji/data/page_cache.h"
#include "hanji/data/prefetcher.h"
#include "hanji/layers/model.h"
#include "hanji/trace/recorder.h"
#include "hanji/train/device_batches.h"
#include "hanji/train/evaluate.h"
#include "hanji/train/learning_rate.h"
#include "hanji/train/operation_profile.h"
#include "hanji/train/shared_batches.h"
#include "hanji/train/skip_reason.h"
#include "hanji/train/step_accounts.h"

namespace hanji::train {
namespace {

double seconds_since(int64_t start_ns) {
  return static_cast<double>(base::now_ns() - start_ns) * 1e-9;
}

std::optional<CallSeconds> seconds_between(const comm::Stats& before, const comm::Stats& after) {
  if (!before.times || !after.times) return std::nullopt;
  const auto seconds = [&](int64_t comm::CallTimes::*member) {
    return static_cast<double>((*after.times).*member - (*before.times).*member) * 1e-9;
  };
  return CallSeconds{.transfer = seconds(&comm::CallTimes::transfer_ns),
                     .exposed_transfer = seconds(&comm::CallTimes::exposed_ns),
                     .skew = seconds(&comm::CallTimes::skew_ns)};
}

layout::Range even_share(int64_t count, int owners, int owner) {
  return {count * owner / owners, count * (owner + 1) / owners};
}

class Loop {
 public:
  Loop(Job& job, const LoopInputs& inputs)
      : job_(job),
        inputs_(inputs),
        loader_(make_loader(inputs.plan, inputs.dataset,
                            plan::share_of(inputs.plan, job.group.rank()).samples)),
        shared_(job.readers, inputs.dataset.samples->shape(),
                std::max(loader_.options().share.size(), inputs.plan.micro_batch)),
        actions_(plan::step_actions(inputs.plan, job.group.rank())) {
    outcome_.steps_done = inputs.first_step;
    outcome_.seconds.reserve(config().steps - inputs.first_step);
    batches_.resize(loader_.micro_batches().size());
    if (!job.device.is_cpu()) on_device_.emplace(job.device);
    base::throw_if_error(schedule::check(actions_));
    if (inputs.dataset.cache) start_cache(*inputs.dataset.cache);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  /// Threads that read samples end before the memory of the cache goes.
  ~Loop() {
    if (inputs_.dataset.cache) inputs_.dataset.cache->cancel();
    prefetcher_.reset();
    if (inputs_.dataset.cache) inputs_.dataset.cache->stop();
  }

  LoopOutcome run() {
    while (outcome_.steps_done < config().steps && outcome_.stop_signal == 0) {
      step();
      const bool last = outcome_.steps_done == config().steps;
      if (last || is_due(config().evaluate_every)) evaluate_now();
      if (last || outcome_.stop_signal != 0 || is_due(inputs_.plan.config.checkpoint.every)) {
        inputs_.save(outcome_.steps_done, outcome_.validation_loss);
      }
    }
    if (inputs_.log) inputs_.log->flush();
    if (inputs_.accounts) inputs_.accounts->flush();
    outcome_.data_bytes = data_bytes() + cached_bytes();
    if (on_device_) outcome_.batch_bytes = 2 * on_device_->bytes_of_step();
    return std::move(outcome_);
  }

 private:
  const plan::TrainConfig& config() const { return inputs_.plan.config.train; }
  bool is_due(int64_t every) const { return every > 0 && outcome_.steps_done % every == 0; }

  /// Of this host.
  std::vector<int> ranks_here() const {
    const plan::HostLayout& hosts = inputs_.plan.hosts;
    std::vector<int> ranks;
    for (int rank = 0; rank < job_.group.size(); ++rank) {
      if (hosts.host_of(rank) == hosts.host_of(job_.group.rank())) ranks.push_back(rank);
    }
    return ranks;
  }

  /// What all of them read, with the partners of samples that are mixed.
  layout::Range share_of_host(const std::vector<int>& ranks) const {
    const auto of = [&](int rank) { return plan::share_of(inputs_.plan, rank).samples; };
    layout::Range share = of(ranks.front());
    for (const int rank : ranks) {
      share = {std::min(share.begin, of(rank).begin), std::max(share.end, of(rank).end)};
    }
    if (!inputs_.dataset.samples->mixes_pairs()) return share;
    return {share.begin / 2 * 2, std::min((share.end + 1) / 2 * 2, config().global_batch)};
  }

  /// One cache for all ranks of the host, which the first one fills. Collective.
  void start_cache(data::PageCache& cache) {
    const std::vector<int> here = ranks_here();
    const comm::Group ranks =
        inputs_.plan.hosts.several() ? job_.group.subgroup(here, "host") : job_.group;
    pages_ = comm::shared_zeros({cache.memory_bytes(ranks.size())}, at::kByte, 0, ranks, "data");
    cache.attach(static_cast<std::byte*>(pages_.mutable_data_ptr()), ranks.rank(), ranks.size());
    reads_pages_ = ranks.rank() == 0;
    if (!reads_pages_) return;
    const plan::DataConfig& reading = inputs_.plan.config.data;
    cache.start_reading(make_loader(inputs_.plan, inputs_.dataset, share_of_host(here)),
                        inputs_.dataset.samples->train_pages(),
                        {inputs_.first_step, config().steps}, reading.prefetch);
  }

  void read(int64_t step) {
    const trace::Span span(job_.group.recorder(), "data", trace::Category::kData);
    shared_.read(
        loader_.micro_batches(), batches_,
        [&](layout::Range positions, layers::Batch& batch) { fill(step, positions, batch); });
    if (inputs_.dataset.cache) inputs_.dataset.cache->finish_step(step);
  }

  /// The batches of a step where they are computed with; the first one's wait for their copies.
  std::vector<layers::Batch> batches_of(int64_t step, StepSeconds& seconds) {
    if (on_device_ && on_device_->has_begun()) return on_device_->take();
    const int64_t start_ns = base::now_ns();
    read(step);
    seconds.data = seconds_since(start_ns);
    if (!on_device_) return batches_;
    on_device_->begin(batches_);
    return on_device_->take();
  }

  /// Reads and copies what the next step needs. The device waits for it only if it has nothing else to do.
  void read_ahead(int64_t step, StepSeconds& seconds) {
    if (!on_device_ || step == config().steps) return;
    on_device_->mark();
    const int64_t start_ns = base::now_ns();
    on_device_->wait_copied();
    read(step);
    if (on_device_->is_idle()) seconds.data += seconds_since(start_ns);
    on_device_->begin(batches_);
  }

  /// What the threads of this rank have read since this was asked last.
  data::ReadingTime reading_since_last() {
    if (prefetcher_) read_ = prefetcher_->reading_time();
    const data::ReadingTime before = std::exchange(read_before_, read_);
    data::ReadingTime read = {read_.samples - before.samples, read_.seconds - before.seconds};
    if (read_.fetching) read.fetching = *read_.fetching - before.fetching.value_or(0);
    return read;
  }

  /// Threads begin on the rank that reads, with its first batch.
  void fill(int64_t step, layout::Range positions, layers::Batch& batch) {
    const data::Source& samples = *inputs_.dataset.samples;
    const plan::DataConfig& reading = inputs_.plan.config.data;
    const auto workers = static_cast<int>(reading.workers);
    const data::Memory memory = on_device_ ? data::Memory::kPinned : data::Memory::kPageable;
    if (workers == 0) {
      const int64_t begun = base::now_ns();
      data::shape_batch(samples.shape(), positions, batch, memory);
      data::read_batch(samples, loader_, step, positions, batch);
      read_.samples += positions.size();
      read_.seconds += static_cast<double>(base::now_ns() - begun) * 1e-9;
      read_.fetching = samples.fetching_seconds();
      return;
    }
    if (!prefetcher_) {
      prefetcher_.emplace(samples, loader_, workers, config().steps, reading.prefetch);
      prefetcher_->use_memory(memory);
    }
    shared_.hand_over(prefetcher_->read(step, positions), batch);
  }

  int64_t cached_bytes() const { return reads_pages_ ? static_cast<int64_t>(pages_.nbytes()) : 0; }

  int64_t data_bytes() const {
    const int64_t ahead = prefetcher_ ? prefetcher_->bytes() : 0;
    if (shared_.are_shared()) return shared_.own_bytes() + ahead;
    if (prefetcher_) return ahead;  // which this rank's batches are of
    int64_t bytes = 0;
    for (const layers::Batch& batch : batches_) {
      if (batch.inputs.defined()) {
        bytes += static_cast<int64_t>(batch.inputs.nbytes() + batch.targets.nbytes());
      }
    }
    return bytes;
  }

  void step() {
    trace::Recorder* recorder = job_.group.recorder();
    const int64_t number = outcome_.steps_done;
    if (recorder) recorder->set_step(number);
    if (inputs_.accounts) inputs_.accounts->begin();
    const int64_t start_ns = base::now_ns();
    const comm::Stats before = stats_of(job_);
    StepSeconds seconds;
    StepResult result;
    {
      const trace::Span span(recorder, "step", trace::Category::kStep);
      const OperationProfile::Step profiled(inputs_.profile, number);
      const std::vector<layers::Batch> batches = batches_of(number, seconds);
      seconds.reading = reading_since_last();
      result = inputs_.step(job_, config(),
                            {.number = number,
                             .micro_batches = batches,
                             .actions = actions_,
                             .memory = inputs_.memory,
                             .learning_rate = learning_rate(config(), number),
                             .before_update = inputs_.before_update,
                             .meanwhile = [&] { read_ahead(number + 1, seconds); },
                             .stop_signal = inputs_.stop.poll().value_or(0)});
    }
    seconds.step = seconds_since(start_ns);
    const comm::Stats after = stats_of(job_);
    seconds.calls = seconds_between(before, after);
    if (inputs_.profile) inputs_.profile->end(number, seconds);
    // Steps that compare the replicas move more; they are not what the plan prices.
    const int64_t wire_bytes = after.wire_bytes - before.wire_bytes;
    const int64_t network_bytes = after.network_bytes - before.network_bytes;
    const bool first = outcome_.seconds.empty();
    const auto least = [first](int64_t& known, int64_t now) {
      known = first ? now : std::min(known, now);
    };
    least(outcome_.wire_bytes_per_step, wire_bytes);
    least(outcome_.network_bytes_per_step, network_bytes);
    least(outcome_.collectives_per_step, after.operations - before.operations);
    account(result, seconds);
    const int64_t every = inputs_.plan.config.comm.check_every;
    if (every > 0 && outcome_.steps_done % every == 0) check_whole_parameters(job_);
  }

  void account(const StepResult& result, const StepSeconds& seconds) {
    if (outcome_.seconds.empty()) outcome_.first_step_end_ns = base::now_ns();
    outcome_.seconds.push_back(seconds);
    if (result.num_targets > 0) outcome_.train_loss = result.loss;
    ++outcome_.steps_done;
    if (!result.updated) refuse_or_skip(result);
    outcome_.stop_signal = result.stop_signal;
    const int64_t memory_bytes =
        inputs_.memory.current_bytes() + static_cast<int64_t>(job_.group.heap().used_bytes());
    if (inputs_.accounts) inputs_.accounts->end(outcome_.steps_done, seconds, memory_bytes);
    if (!inputs_.log) return;
    inputs_.log->step({.step = outcome_.steps_done,
                       .loss = result.loss,
                       .learning_rate = learning_rate(config(), outcome_.steps_done - 1),
                       .gradient_norm = result.gradient_norm,
                       .step_seconds = seconds.step,
                       .data_seconds = seconds.data,
                       .calls = seconds.calls,
                       .num_targets = result.num_targets,
                       .memory_bytes = memory_bytes});
  }

  void refuse_or_skip(const StepResult& result) {
    ++outcome_.num_skipped;
    if (config().nan == plan::NanPolicy::kStop) {
      throw Error(skip_reason({.steps_done = outcome_.steps_done,
                               .loss = result.loss,
                               .gradient_norm = result.gradient_norm,
                               .num_targets = result.num_targets},
                              config()));
    }
    if (result.num_targets > 0) return;
    if (++outcome_.num_without_targets == 1 && inputs_.log) {
      inputs_.log->warning(outcome_.steps_done,
                           "no target of this step is valid: it is left out, as train.nan = skip "
                           "asks for; further ones are counted in the summary");
    }
  }

  void evaluate_now() {
    const plan::Plan& plan = inputs_.plan;
    const int64_t samples = std::min(config().evaluate_batches * config().global_batch,
                                     inputs_.dataset.samples->num_validation());
    if (samples == 0) return;
    const std::optional<schedule::GrainTree> tree = evaluation_tree(samples);
    layout::Range share = even_share(samples, plan.mesh.num_data_coordinates(),
                                     plan.mesh.data_coordinate(job_.group.rank()));
    if (tree) {
      const layout::Range leaves = tree->owners[job_.data.rank()];
      share = {std::min(samples, leaves.begin * plan.micro_batch),
               std::min(samples, leaves.end * plan.micro_batch)};
    }
    const int coordinates = plan.mesh.num_data_coordinates();
    const auto micro_batches = [&](int coordinate) {
      const int64_t size = tree ? tree->owners[coordinate].size() * plan.micro_batch
                                : even_share(samples, coordinates, coordinate).size();
      return (size + plan.micro_batch - 1) / plan.micro_batch;
    };
    bool holds_stages = plan.config.parallel.reshard == plan::Reshard::kStep;
    for (int other = 1; other < coordinates; ++other) {
      holds_stages |= micro_batches(other) != micro_batches(0);
    }
    const Evaluation found = evaluate(
        job_, *inputs_.dataset.samples,
        {.num_samples = samples,
         .share = share,
         .micro_batch = plan.micro_batch,
         .batches = shared_,
         .reading = {.workers = plan.config.data.workers, .prefetch = plan.config.data.prefetch},
         .holds_stages = holds_stages,
         .tree = tree ? &*tree : nullptr});
    if (found.num_targets == 0) return warn_of_no_targets(samples);
    outcome_.validation_loss = found.loss;
    outcome_.validation_metric = found.metric;
    if (inputs_.log) {
      inputs_.log->evaluation(
          outcome_.steps_done, found.loss,
          {.name = std::string(job_.model->metric_name()), .value = found.metric});
    }
  }

  /// The loss of the evaluation before stays.
  void warn_of_no_targets(int64_t samples) {
    if (!inputs_.log || std::exchange(told_of_evaluation_, true)) return;
    inputs_.log->warning(
        outcome_.steps_done,
        fmt::format("no target of {} is valid (the loss ignores or masks all of them): there "
                    "is no validation loss",
                    base::counted(samples, "validation sample")));
  }

  /// Stable: the leaves are micro-batches of one grain, the last of which may be shorter.
  std::optional<schedule::GrainTree> evaluation_tree(int64_t samples) const {
    if (config().bits != plan::Bits::kStable) return std::nullopt;
    const int64_t leaves = (samples + config().grain - 1) / config().grain;
    std::vector<layout::Range> owners;
    for (int data = 0; data < job_.data.size(); ++data) {
      owners.push_back(even_share(leaves, job_.data.size(), data));
    }
    return schedule::grain_tree(leaves, owners);
  }

  Job& job_;
  const LoopInputs& inputs_;
  data::Loader loader_;
  SharedBatches shared_;
  schedule::ActionList actions_;
  std::vector<layers::Batch> batches_;
  std::optional<DeviceBatches> on_device_;
  at::Tensor pages_;  // of the cache
  bool reads_pages_ = false;
  std::optional<data::Prefetcher> prefetcher_;
  data::ReadingTime read_, read_before_;  // so far, and before this step
  bool told_of_evaluation_ = false;       // without valid targets
  LoopOutcome outcome_;
};

}  // namespace

LoopOutcome run_loop(Job& job, const LoopInputs& inputs) { return Loop(job, inputs).run(); }

}  // namespace hanji::train
