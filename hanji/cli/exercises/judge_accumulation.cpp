#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "hanji/base/units.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {
namespace {

constexpr double kRate = 0.1;
constexpr double kAlike = 1e-12;  // float64, other orders of sums

using Weights = std::array<double, 4>;

struct Sample {
  std::array<double, 4> x;  ///< The last is that of the bias.
  double y;
};

Sample read_sample(int64_t index) {
  const auto i = static_cast<double>(index);
  return {{std::sin(i), std::cos(2 * i), std::sin(3 * i), 1}, std::cos(i)};
}

/// Adds the gradient of (x w - y)^2 times `factor`.
void add_gradient(const Weights& weights, int64_t index, double factor, Weights& gradient) {
  const Sample sample = read_sample(index);
  double error = -sample.y;
  for (size_t k = 0; k < weights.size(); ++k) error += weights[k] * sample.x[k];
  for (size_t k = 0; k < weights.size(); ++k) gradient[k] += 2 * factor * error * sample.x[k];
}

Weights step_gradient(const AccumulationJob& job, int64_t step, const GradientFactors& factors,
                      const Weights& weights) {
  Weights gradient{};
  const int64_t batches = int64_t{1} * job.ranks * job.micro_batches, count = batches * job.samples;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t later = job.micro_batches - 1 - i / job.samples % job.micro_batches;
    const double factor =
        factors.all * std::pow(factors.per_later, later) / static_cast<double>(count);
    add_gradient(weights, step * count + i, factor, gradient);
  }
  return gradient;
}

double difference(const std::vector<double>& one, const std::vector<double>& other) {
  if (one.size() != other.size()) return 1;
  double most = 0;
  for (size_t i = 0; i < one.size(); ++i) most = std::max(most, std::abs(one[i] - other[i]));
  return std::isfinite(most) ? most : 1;
}

/// The mistake whose weights these are.
std::optional<Point> name_mistake(const AccumulationJob& job, const std::vector<double>& weights) {
  const double ranks = job.ranks, batches = job.micro_batches;
  const std::string sum =
      fmt::format("the gradients of {} are summed, not averaged", base::counted(job.ranks, "rank"));
  const std::string undivided = fmt::format(
      "the losses of {} micro-batches are summed, not divided by their number", job.micro_batches);
  const std::string average = "Average::kMean divides by the ranks";
  const std::string divide = "each loss is a mean over its own samples: divide it by kMicroBatches";
  const std::string again = fmt::format(
      "gradients of {} are summed after every micro-batch, the earlier ones again and again",
      base::counted(job.ranks, "rank"));
  const std::string hold = "; hold replicas.accumulate() in all but the last";
  const std::array<std::tuple<GradientFactors, std::string, std::string>, 7> known{{
      {{.all = ranks}, sum, average},
      {{.all = batches}, undivided, divide},
      {{.all = ranks * batches}, sum + ", and " + undivided, average + "; " + divide},
      {{.all = 1 / ranks}, "gradients are divided by the ranks twice", average + " already"},
      {{.all = 1 / batches},
       "losses are divided by the micro-batches twice",
       "divide once by kMicroBatches"},
      {{.all = ranks, .per_later = ranks}, again, average + hold},
      {{.all = ranks * batches, .per_later = ranks},
       again + ", and " + undivided,
       average + hold + "; " + divide},
  }};
  for (const auto& [factors, text, hint] : known) {
    if (difference(weights, train_alone(job, factors)) < kAlike) {
      return Point{false, "weights are not those of one process: " + text, hint};
    }
  }
  return std::nullopt;
}

Point judge_weights(const AccumulationJob& job, const std::vector<AccumulationRank>& ranks) {
  const std::vector<double> alone = train_alone(job);
  const std::vector<double>& weights = ranks.front().weights;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const double apart = difference(ranks[rank].weights, weights);
    if (apart == 0) continue;
    return {
        false,
        fmt::format(
            "ranks 0 and {} have other weights ({:.3g} apart): their gradients were not averaged",
            rank, apart),
        "the last backward() of a step must stand outside of the guard, which holds until its "
        "scope ends"};
  }
  if (const double apart = difference(weights, alone); apart < kAlike) {
    return {true,
            fmt::format("weights are those of one process on all samples, within {:.1g}", apart)};
  }
  if (auto mistake = name_mistake(job, weights)) return *std::move(mistake);
  return {
      false,
      fmt::format("weights differ from those of one process by {:.3g}", difference(weights, alone)),
      "every sample of a step counts once; each loss is a mean already: is it divided by the "
      "number of micro-batches?"};
}

Point judge_calls(const AccumulationJob& job, int64_t calls) {
  constexpr int64_t kOfAnAverage = 2;  // the gradients' bucket, and which of them are used
  const std::string seen = fmt::format("{} collectives in {} of {} micro-batches", calls,
                                       base::counted(job.steps, "step"), job.micro_batches);
  if (calls == 0)
    return {false, seen + ": nothing was averaged", "the last backward() of a step averages"};
  if (calls <= kOfAnAverage * job.steps) {
    return {true, seen +
                      ": one average a step (the gradients, and which parameters have one: 2 "
                      "collectives)"};
  }
  return {false,
          fmt::format("{}: gradients are averaged {:.3g} times a step, not once", seen,
                      static_cast<double>(calls) / static_cast<double>(kOfAnAverage * job.steps)),
          "hold replicas.accumulate() in all but the last"};
}

}  // namespace

std::vector<double> train_alone(const AccumulationJob& job, const GradientFactors& factors) {
  Weights weights{};
  for (int64_t step = 0; step < job.steps; ++step) {
    const Weights gradient = step_gradient(job, step, factors, weights);
    for (size_t k = 0; k < weights.size(); ++k) weights[k] -= kRate * gradient[k];
  }
  return {weights.begin(), weights.end()};
}

Judgement judge_accumulation(const AccumulationJob& job,
                             const std::vector<AccumulationRank>& ranks) {
  if (static_cast<int>(ranks.size()) != job.ranks) {
    return {
        {false,
         fmt::format("{} of {} printed weights", ranks.size(), base::counted(job.ranks, "rank")),
         "leave the last lines of the program as they are"}};
  }
  return {judge_weights(job, ranks), judge_calls(job, ranks.front().calls)};
}

}  // namespace hanji::cli
