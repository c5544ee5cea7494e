#include "hanji/train/time_operations.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "hanji/compute/apply.h"
#include "hanji/compute/memory.h"
#include "hanji/lens/generator_state.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/stage_times.h"
#include "hanji/report/statistics.h"
#include "hanji/train/busy_ranks.h"
#include "hanji/train/job_operations.h"
#include "hanji/train/pair_operations.h"
#include "hanji/train/time_samples.h"
#include "hanji/train/timed_update.h"

namespace hanji::train {
namespace {

/// As long as so many forwards and backwards are operations timed, within these seconds.
constexpr double kPasses = 20;
constexpr double kMinOperations = 0.1;
constexpr double kMaxOperations = 4;
/// Of tensors that operations take which are timed in turn, over the ranks that have copies of them: more
/// than caches hold, so that each operation finds what the others left there.
constexpr int64_t kMaxBytesInTurn = int64_t{256} << 20;
/// The update, a sample, its deviation and its parts.
constexpr double kOtherSeconds = 5 * kOtherBudget;
/// A forward and backward of more than about so many seconds is timed at fewer samples: each
/// operation is run a few times.
constexpr double kMaxPassSeconds = 1;

/// Samples of a micro-batch, or the part of them that does not take too long.
int64_t samples_to_time(const plan::Plan& plan) {
  const double flops =
      plan.model.product_flops_per_sample() + plan.model.attention_flops_per_sample();
  const double most = kMaxPassSeconds / plan::estimated_seconds(std::max(flops, 1.0), 0);
  const int64_t grains = static_cast<int64_t>(most) / plan.config.train.grain;
  const int64_t samples = std::max<int64_t>(1, grains) * plan.config.train.grain;
  return std::min(plan.micro_batch, samples);
}

/// A rank's calls in the order of a step: all begin, then all end in reverse. Two parts of each call, those
/// that begin first.
Round round_of(const std::vector<const RecordedOperation*>& operations) {
  std::vector<OperationCall> calls;
  for (const RecordedOperation* one : operations) calls.push_back(one->make());
  return [calls](std::vector<double>& seconds) {
    const size_t count = calls.size();
    for (size_t i = 0; i < count; ++i) {
      calls[i].before();
      add_seconds(seconds[i], calls[i].begin);
    }
    for (size_t i = count; i-- > 0;) add_seconds(seconds[count + i], calls[i].end);
  };
}

void report_progress(const TimingJob& job, double done, double budget) {
  if (job.on_progress) job.on_progress(done, budget + kOtherSeconds);
}

/// Times the chosen ones in turn, as many at once as memory allows.
std::vector<plan::CallSeconds> time_in_turn(const TimingJob& job,
                                            const std::vector<RecordedOperation>& all,
                                            const std::vector<plan::Operation>& chosen,
                                            double budget) {
  std::vector<size_t> order(chosen.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::less(), [&](size_t i) { return chosen[i].index; });
  double rest = 0, done = 0;
  for (const plan::Operation& one : chosen) rest += one.estimate;
  report_progress(job, 0, budget);
  std::vector<plan::CallSeconds> seconds(chosen.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::vector<const RecordedOperation*> together;
    double estimate = 0;
    for (int64_t bytes = 0; end < order.size(); ++end) {
      const RecordedOperation& one = all[chosen[order[end]].index];
      bytes += one.bytes;
      if (end > begin && bytes > kMaxBytesInTurn / job.busy_ranks) break;
      estimate += one.operation.estimate;
      together.push_back(&one);
    }
    const std::vector<double> means =
        time_with_busy_ranks(job.busy_ranks, budget * estimate / rest, 2 * together.size(),
                             [&] { return round_of(together); });
    report_progress(job, done += budget * estimate / rest, budget);
    for (size_t i = 0; i < together.size(); ++i) {
      const double scale = together[i]->scale;
      const double begun = scale * means[i], ended = scale * means[together.size() + i];
      const bool is_recorded = together[i]->operation.kind == plan::OperationKind::kRecorded;
      seconds[order[begin + i]] = {begun + ended, is_recorded ? 0 : begun};
    }
  }
  return seconds;
}

std::vector<plan::Operation> operations_of(const std::vector<RecordedOperation>& all) {
  std::vector<plan::Operation> operations;
  for (const RecordedOperation& one : all) operations.push_back(one.operation);
  return operations;
}

/// Operations with their seconds, and these by the layers that call them.
struct TimedLayers {
  std::vector<plan::TimedOperation> operations;
  std::vector<schedule::StageSeconds> layers = {};
};

TimedLayers in_layers(const TimingJob& job, const std::vector<plan::Operation>& recorded,
                      std::vector<plan::TimedOperation> timed) {
  auto layers = plan::sort_by_layers(job.plan.model, recorded, timed);
  return {std::move(timed), std::move(layers)};
}

std::vector<plan::TimedOperation> timed_operations(const TimingJob& job,
                                                   const std::vector<RecordedOperation>& all) {
  const std::vector<plan::Operation> operations = operations_of(all);
  double pass = 0;
  for (const plan::Operation& one : operations) pass += one.count * one.estimate;
  const double budget = std::clamp(kPasses * pass, kMinOperations, kMaxOperations);
  return plan::time_operations(operations, budget,
                               [&](const std::vector<plan::Operation>& chosen, double seconds) {
                                 return time_in_turn(job, all, chosen, seconds);
                               });
}

double update_seconds(const TimingJob& job) {
  const int64_t most = kMaxBytesInTurn / TimedUpdate::kBytesOfElement / job.busy_ranks;
  const UpdatePart part = part_of_update(job.plan, most);
  if (part.sizes.empty()) return 0;
  return part.scale * time_alone(job, [&] {
           return [update = std::make_shared<TimedUpdate>(part.sizes, job.plan, c10::kCPU)] {
             update->run();
           };
         });
}

/// Of all blocks, by those of the part that are timed: the same ones, or of fewer residues.
TimedLayers timed_pairs(const TimingJob& job, const PartOfPairs& part) {
  const TimingJob small{part.plan, part.workload, job.busy_ranks, job.on_progress};
  const std::vector<RecordedOperation> seen = seen_operations(small, part.samples);
  const std::vector<plan::Operation> operations = operations_of(seen);
  const std::vector<plan::TimedOperation> timed = timed_operations(small, seen);
  const bool is_smaller = part.plan.config.data.residues < job.plan.config.data.residues;
  const RecordPairs record = [&](const plan::Plan& of_blocks) {
    return is_smaller ? record_without_memory(of_blocks, part.samples)
                      : seen_operations({of_blocks, job.workload, job.busy_ranks}, part.samples);
  };
  const std::vector<plan::Operation> all = pair_operations(job.plan, record);
  return in_layers(job, all, plan::scale_times(all, operations, timed));
}

/// How many times longer than one of the part a sample of the job takes to make, by the growth from half of the part's
/// residues to all of them.
double growth_of_samples(const TimingJob& job, const PartOfPairs& part) {
  constexpr double kMaxGrowth = 3;  // shortest paths take the cube
  const int64_t here = part.plan.config.data.residues, all = job.plan.config.data.residues;
  if (here == all) return 1;
  const auto seconds = [&](const PartOfPairs& one) {
    return std::max(1e-9, sample_seconds({one.plan, one.workload, job.busy_ranks}));
  };
  const PartOfPairs half = with_residues(part, std::max<int64_t>(8, here / 2));
  const double growth = std::log(seconds(part) / seconds(half)) / std::log(2);
  return std::pow(static_cast<double>(all) / static_cast<double>(here),
                  std::clamp(growth, 0.0, kMaxGrowth));
}

plan::OperationTimes time_pairs(const TimingJob& job) {
  const PartOfPairs part = part_of_pairs(job.plan, samples_to_time(job.plan), job.busy_ranks);
  const int64_t residues = part.plan.config.data.residues;
  const TimingJob small{part.plan, part.workload, job.busy_ranks};
  const double growth = growth_of_samples(job, part);
  auto [operations, layers] = timed_pairs(job, part);
  return {.samples = part.samples,
          .residues = residues == job.plan.config.data.residues ? 0 : residues,
          .operations = std::move(operations),
          .layers = std::move(layers),
          .update_seconds = update_seconds(job),
          .sample_seconds = growth * sample_seconds(small),
          .sample_deviation = growth * sample_deviation(small)};
}

double timed_probe() {
  constexpr int64_t kSide = 512, kElements = int64_t{1} << 22;
  const c10::NoGradGuard no_grad;
  const at::Tensor square = at::ones({kSide, kSide}), many = at::ones({kElements});
  at::Tensor product = at::mm(square, square), copy = many.clone();
  std::vector<double> rounds(15);
  for (double& one : rounds) {
    add_seconds(one, [&] {
      at::mm_out(product, square, square);
      copy.copy_(many);
    });
  }
  return report::median(std::move(rounds));
}

}  // namespace

plan::OperationTimes time_operations(const TimingJob& job) {
  const compute::AppliedForAWhile kernels(job.plan.kernels, job.plan.threads);
  const lens::KeptGenerator generator;
  compute::keep_freed_memory();
  const bool are_pairs = plan::data_kind(job.plan.config) == plan::DataKind::kPairs;
  if (are_pairs && !job.workload.make) return time_pairs(job);
  const int64_t samples = samples_to_time(job.plan);
  const bool names_its_own = plan::family_of(job.plan.config.model).facts != nullptr;
  const std::vector<RecordedOperation> all =
      names_its_own ? own_operations(job, samples, {c10::kCPU, kMaxBytesInTurn / job.busy_ranks})
                    : seen_operations(job, samples);
  TimedLayers timed{.operations = timed_operations(job, all)};
  if (!names_its_own) timed = in_layers(job, operations_of(all), std::move(timed.operations));
  const double of_sample = sample_seconds(job);
  plan::OperationTimes times{.samples = samples,
                             .operations = std::move(timed.operations),
                             .layers = std::move(timed.layers),
                             .update_seconds = update_seconds(job),
                             .sample_seconds = of_sample,
                             .sample_deviation = sample_deviation(job),
                             .sample_parts = sample_parts(job, of_sample)};
  add_pages(job, times);
  return times;
}

double probe_seconds() {
  static const double seconds = timed_probe();
  return seconds;
}

}  // namespace hanji::train
