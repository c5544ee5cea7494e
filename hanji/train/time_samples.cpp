#include "hanji/train/time_samples.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/data/batch.h"
#include "hanji/data/page_cache.h"
#include "hanji/train/busy_ranks.h"

namespace hanji::train {
namespace {

/// The shorter of two runs: parts are differences, which one interruption would spoil.
void add_least(double& seconds, const std::function<void()>& part) {
  double first = 0, second = 0;
  add_seconds(first, part);
  add_seconds(second, part);
  seconds += std::min(first, second);
}

}  // namespace

data::Loader loader_of(const TimingJob& job) {
  return make_loader(job.plan, job.workload.dataset, job.plan.shares[0].samples);
}

double time_alone(const TimingJob& job, const std::function<std::function<void()>()>& make) {
  return time_with_busy_ranks(job.busy_ranks, kOtherBudget, 1, [&]() -> Round {
    return [part = make()](std::vector<double>& seconds) { add_seconds(seconds[0], part); };
  })[0];
}

double sample_seconds(const TimingJob& job) {
  const data::Loader loader = loader_of(job);
  const layout::Range positions = loader.micro_batches().front();
  const double seconds = time_alone(job, [&] {
    return [&, batch = std::make_shared<layers::Batch>(), step = int64_t{0}]() mutable {
      data::read_batch(*job.workload.dataset.samples, loader, step++, positions, *batch);
    };
  });
  return seconds / static_cast<double>(positions.size());
}

double sample_deviation(const TimingJob& job) {
  constexpr int64_t kMaxReads = 64;
  const data::Loader loader = loader_of(job);
  layout::Range positions = loader.options().share;
  positions.end = std::min(positions.end, positions.begin + kMaxReads);
  layers::Batch batch;
  std::vector<double> seconds;
  const int64_t begun = base::now_ns();
  const auto elapsed = [](int64_t since) {
    return static_cast<double>(base::now_ns() - since) * 1e-9;
  };
  for (int64_t at = positions.begin; at < positions.end; ++at) {
    const int64_t start = base::now_ns();
    data::read_batch(*job.workload.dataset.samples, loader, 0, {at, at + 1}, batch);
    seconds.push_back(elapsed(start));
    if (elapsed(begun) > kOtherBudget) break;
  }
  const auto count = static_cast<double>(seconds.size());
  const double mean = std::reduce(seconds.begin(), seconds.end()) / count;
  double squares = 0;
  for (const double one : seconds) squares += (one - mean) * (one - mean);
  return std::sqrt(squares / count);
}

std::vector<plan::SamplePart> sample_parts(const TimingJob& job, double sample_seconds) {
  constexpr double kMaxRound = 0.03;  // of all parts, where one sample is not longer
  const data::Source& source = *job.workload.dataset.samples;
  std::vector<std::string> names = source.parts();
  if (names.empty()) return {};
  const data::Loader loader = loader_of(job);
  const auto count = static_cast<int64_t>(
      kMaxRound / std::max(1e-9, sample_seconds * static_cast<double>(names.size())));
  layout::Range positions = loader.options().share;
  positions.end = std::min(positions.end, positions.begin + std::max<int64_t>(1, count));
  const auto read_until = [&](size_t part, int64_t step, layers::Batch& batch) {
    const std::vector<data::EpochSample> samples = loader.at(step, positions);
    for (int64_t row = 0; row < positions.size(); ++row) {
      const data::EpochSample one = samples[static_cast<size_t>(row)];
      throw_if_error(source.read_parts(part, {one.epoch, one.index, &batch, row}));
    }
  };
  const size_t num_parts = names.size();
  if (source.mixes_pairs()) names.emplace_back("mixup, cutmix");
  const auto make_round = [&]() -> Round {
    return [&, batch = std::make_shared<layers::Batch>(),
            step = int64_t{0}](std::vector<double>& seconds) mutable {
      data::shape_batch(source.shape(), positions, *batch);
      for (size_t part = 0; part < num_parts; ++part) {
        add_least(seconds[part], [&] { read_until(part, step, *batch); });
      }
      if (names.size() > num_parts) {
        add_least(seconds.back(),
                  [&] { data::read_batch(source, loader, step, positions, *batch); });
      }
      ++step;
    };
  };
  return plan::parts_of_sample(
      names, time_with_busy_ranks(job.busy_ranks, 2 * kOtherBudget, names.size(), make_round),
      sample_seconds);
}

void add_pages(const TimingJob& job, plan::OperationTimes& times) {
  const Dataset& dataset = job.workload.dataset;
  if (!dataset.cache) return;
  times.page_seconds = dataset.cache->seconds_per_page().or_throw();
  std::vector<uint32_t> pages = dataset.samples->train_pages();
  const auto samples = static_cast<double>(pages.size());
  std::ranges::sort(pages);
  const auto last = std::ranges::unique(pages).begin();
  const auto count = std::distance(pages.begin(), last);
  if (count > job.plan.config.data.pages) {
    times.pages_per_sample = static_cast<double>(count) / samples;
  }
}

}  // namespace hanji::train
