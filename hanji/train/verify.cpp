#include "hanji/train/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "hanji/base/file.h"
#include "hanji/base/version.h"
#include "hanji/checkpoint/diff.h"
#include "hanji/plan/verifiable.h"
#include "hanji/topology/machine.h"
#include "hanji/train/launch_job.h"
#include "hanji/train/one_process.h"
#include "hanji/train/verify_rank.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;
using report::FirstDifference;
using report::ObservedRun;
using report::Quantity;

std::optional<report::Distance> distance_of(const std::vector<checkpoint::Difference>& differences,
                                            const std::string& tensor) {
  const auto found = std::ranges::find(differences, tensor, &checkpoint::Difference::tensor);
  if (found == differences.end() || found->kind != checkpoint::DifferenceKind::kValues) return {};
  return report::Distance{.largest = found->largest,
                          .largest_ulps = found->largest_ulps,
                          .num_elements = found->num_elements,
                          .first_element = found->first_element};
}

/// Of a loss or norm, whose digests are the numbers themselves.
checkpoint::NamedTensor as_tensor(const report::Digest& total) {
  return {total.name, DType::kFloat64, {1}, std::as_bytes(std::span(&total.value, 1))};
}

std::optional<report::Distance> distance_of_total(const FirstDifference& found,
                                                  const report::ObservedStep& expected,
                                                  const report::ObservedStep& actual) {
  const auto total = [&](const report::ObservedStep& step) {
    return *std::ranges::find_if(step.digests, [&](const report::Digest& one) {
      return one.quantity == Quantity::kTotal && one.name == found.tensor;
    });
  };
  const report::Digest right = total(expected);
  const report::Digest wrong = total(actual);
  return distance_of(checkpoint::diff(std::vector{as_tensor(right)}, std::vector{as_tensor(wrong)}),
                     found.tensor);
}

/// Both once more, up to the step at which they part.
std::optional<report::Distance> distance_again(const FirstDifference& found, const plan::Plan& plan,
                                               const Verified& verified) {
  const Keep keep{.step = found.step, .rank = found.ranks.front()};
  verified.one_process({plan, "", keep});
  verified.ranks({plan, "", keep});
  const auto right = checkpoint::SafetensorsFile::open(verified.one_process_file).or_throw();
  const auto wrong = checkpoint::SafetensorsFile::open(verified.rank_file(keep.rank)).or_throw();
  const bool gradient = found.quantity == Quantity::kGradient;
  return distance_of(checkpoint::diff(right, wrong), (gradient ? "gradient." : "") + found.tensor);
}

/// The axes without which, one at a time, the ranks are one process. A job without an axis may fail by
/// itself, as where its numbers are not finite.
void find_axes(FirstDifference& found, const plan::Plan& plan, const Verified& verified) {
  for (const std::string& axis : plan.mesh.used_axes()) {
    const plan::Plan less = plan::without_axis(plan, axis).or_throw();
    const VerifiedRun run{less, axis};
    try {
      const ObservedRun expected = verified.one_process(run);
      const bool differs =
          report::first_difference(expected, verified.ranks(run)).or_throw().has_value();
      if (!differs) found.axes.push_back(axis);
    } catch (const Error& error) {
      if (error.code() != base::Code::kInvalidArgument) throw;
      found.unknown_axes[axis] = error.what();
    }
  }
}

ObservedRun read_observed(const fs::path& path) {
  return report::observed_from_json(base::read_file(path, report::kMaxObservedBytes).or_throw())
      .or_throw();
}

std::vector<ObservedRun> read_ranks(const fs::path& folder, int ranks) {
  std::vector<ObservedRun> seen;
  for (int rank = 0; rank < ranks; ++rank) {
    seen.push_back(read_observed(rank_file(folder, rank, "json")));
  }
  return seen;
}

/// The command's hidden verb on every rank of the plan.
class LaunchedRanks {
 public:
  explicit LaunchedRanks(const VerifyLaunch& launch) : launch_(launch) {}

  void run(const VerifiedRun& run) const {
    auto options = launch_options(run.plan, plan::to_json(run.plan), launch_.out);
    options.command = command(run);
    options.on_event = launch_.on_event;
    refuse_failure(launch::launch(options).or_throw(), launch_.on_event != nullptr);
  }

 private:
  std::vector<std::string> command(const VerifiedRun& run) const {
    std::vector<std::string> words = {base::executable_path().or_throw().string(), "verify-rank",
                                      "--folder",
                                      observed_folder(launch_.out, run.without).string()};
    if (run.keep) {
      words.insert(words.end(), {"--keep-step", std::to_string(run.keep->step), "--keep-rank",
                                 std::to_string(run.keep->rank)});
    }
    return words;
  }

  /// `is_told`: the cause, by an event.
  static void refuse_failure(const launch::Outcome& outcome, bool is_told) {
    if (outcome.exit_code == 0) return;
    const auto failed =
        std::ranges::find(outcome.ranks, outcome.first_failed, &launch::RankExit::rank);
    const bool has_report = failed != outcome.ranks.end() && !failed->report.ok();
    Status why = has_report ? failed->report : base::peer_lost(outcome.cause);
    if (is_told) why = Status(why.code(), "the cause is told above");
    throw Error(why.at("verify: the ranks did not come to their end"));
  }

  const VerifyLaunch& launch_;
};

}  // namespace

fs::path observed_folder(const fs::path& out, const std::string& without) {
  return without.empty() ? out / "observed" : out / "observed" / ("without_" + without);
}

report::Certificate verify(const plan::Plan& plan, const Verified& verified) {
  report::Certificate certificate{
      .plan = plan, .build_id = base::build_id(), .host = {}, .expected = {}};
  if (const auto machine = topology::read_machine(); machine.ok()) {
    certificate.host = machine->hostname;
  }
  certificate.expected = verified.one_process({plan});
  const std::vector<ObservedRun> ranks = verified.ranks({plan});
  certificate.difference = report::first_difference(certificate.expected, ranks).or_throw();
  for (const ObservedRun& one : ranks) {
    certificate.farthest = std::max(certificate.farthest, one.farthest);
  }
  if (!certificate.difference) return certificate;
  FirstDifference& found = *certificate.difference;
  find_axes(found, plan, verified);
  if (found.quantity == Quantity::kTotal) {
    const auto at = static_cast<size_t>(found.step);
    found.distance = distance_of_total(found, certificate.expected.steps[at],
                                       ranks[found.ranks.front()].steps[at]);
  } else {
    found.distance = distance_again(found, plan, verified);
  }
  return certificate;
}

report::Certificate verify_job(const plan::Plan& plan, const Dataset& dataset,
                               const VerifyLaunch& launch) {
  const LaunchedRanks ranks(launch);
  base::throw_if_error(base::write_file_atomic(launch.out / "plan.json", plan::to_json(plan)));
  return verify_job(plan, Workload{dataset}, launch.out,
                    [&](const VerifiedRun& run) { ranks.run(run); });
}

report::Certificate verify_job(const plan::Plan& plan, const Workload& workload,
                               const fs::path& out,
                               const std::function<void(const VerifiedRun&)>& run_ranks) {
  const fs::path observed = observed_folder(out, "");
  const fs::path alone = observed / "one_process.safetensors";
  const Verified verified{
      .one_process =
          [&](const VerifiedRun& run) {
            const fs::path folder = observed_folder(out, run.without);
            base::throw_if_error(base::make_directories(folder));
            ObserveOptions options{.keep_file = alone};
            if (run.keep) {
              options.keep_step = run.keep->step;
            } else if (plan::verified_within(run.plan) > 0) {
              options.reference_folder = folder;
            }
            auto seen = observe_one_process(run.plan, workload.dataset, options, workload.make);
            base::throw_if_error(
                base::write_file_atomic(folder / "one_process.json", report::to_json(seen)));
            return seen;
          },
      .ranks =
          [&](const VerifiedRun& run) {
            run_ranks(run);
            return read_ranks(observed_folder(out, run.without), run.plan.ranks);
          },
      .one_process_file = alone,
      .rank_file = [&](int rank) { return rank_file(observed, rank, "safetensors"); }};
  report::Certificate certificate = verify(plan, verified);
  base::throw_if_error(
      base::write_file_atomic(out / "certificate.json", report::to_json(certificate)));
  return certificate;
}

}  // namespace hanji::train
