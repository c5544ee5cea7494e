// A thousand runs with one fault or none, of every kind of mesh: the verdict names what was done to them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <map>

#include "hanji/report/test_run.h"
#include "hanji/report/verdict.h"

namespace hanji::report {
namespace {

using test_run::MadeRun;
using test_run::MadeSteps;
using test_run::Own;

/// Noise as pinned ranks of one machine have it: half of it lasts from a step to the next.
constexpr double kNoise = 0.004, kKept = 0.5, kPlanError = 0.01, kMinTruth = 0.0125;
constexpr int kRuns = 1000;

struct Mesh {
  int data, tp, pp;
};
constexpr std::array kMeshes = {Mesh{2, 1, 1}, Mesh{4, 1, 1}, Mesh{8, 1, 1}, Mesh{64, 1, 1},
                                Mesh{1, 2, 1}, Mesh{1, 4, 1}, Mesh{4, 2, 1}, Mesh{8, 8, 1},
                                Mesh{1, 1, 2}, Mesh{1, 1, 4}, Mesh{2, 1, 2}, Mesh{4, 1, 4},
                                Mesh{2, 2, 2}, Mesh{4, 2, 2}, Mesh{2, 4, 4}, Mesh{8, 2, 4}};

/// What was done to a run.
struct Fault {
  Cause cause = Cause::kCompute;  ///< kCompute: nothing.
  int rank = -1;
  double size = 0;
};

/// A mesh and a fault of each run; the same for each number.
struct Case {
  Mesh mesh;
  Fault fault;
  uint64_t seed;
};

Case case_of(int number) {
  std::mt19937_64 random(number);
  Case one{.mesh = kMeshes[number % kMeshes.size()], .seed = random()};
  const int ranks = one.mesh.data * one.mesh.tp * one.mesh.pp;
  constexpr std::array kSizes = {0.025, 0.05, 0.1, 0.2};
  const double size = kSizes[random() % kSizes.size()];
  const int rank = static_cast<int>(random() % ranks);
  switch (number / kMeshes.size() % 5) {
    case 0: return one;
    case 1:
    case 2: one.fault = {Cause::kSlowRank, rank, size}; break;
    case 3: one.fault = {Cause::kData, rank, size}; break;
    default: one.fault = {Cause::kCommunication, -1, size}; break;
  }
  return one;
}

MadeRun made_of(const Case& one, const Fault& fault) {
  const auto own = [fault](int rank, int64_t) {
    Own own;
    if (fault.cause == Cause::kSlowRank && rank == fault.rank) own.compute *= 1 + fault.size;
    if (fault.cause == Cause::kData && rank == fault.rank) own.data += 0.1 * fault.size;
    if (fault.cause == Cause::kCommunication) own.transfer += 0.1 * fault.size;
    return own;
  };
  return {.ranks = one.mesh.data,
          .steps = 45,
          .seed = one.seed,
          .noise = kNoise,
          .own = own,
          .tp = one.mesh.tp,
          .pp = one.mesh.pp,
          .kept = kKept,
          .plan_error = kPlanError};
}

const plan::Plan& plan_for(const Mesh& mesh) {
  static std::map<std::array<int, 3>, plan::Plan> known;
  const std::array key = {mesh.data, mesh.tp, mesh.pp};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] = test_run::plan_of({.ranks = mesh.data, .tp = mesh.tp, .pp = mesh.pp});
}

double mean_step(const RunRecords& run) {
  return mean_over(lines_of(run), [](const LineParts& line) { return line.ranks[0].seconds; });
}

bool blames_nobody(const Verdict& verdict) {
  return verdict.cause != Cause::kSlowRank && verdict.cause != Cause::kData &&
         verdict.cause != Cause::kCommunication && verdict.cause != Cause::kUnevenShares &&
         std::ranges::none_of(verdict.causes, [](const Saving& one) {
           return one.cause == Cause::kSlowRank || one.cause == Cause::kData;
         });
}

TEST(VerdictProof, AThousandRunsAreJudgedAsTheyWereMade) {
  int faults = 0, found = 0, close = 0;
  std::string missed;
  for (int number = 0; number < kRuns; ++number) {
    const Case one = case_of(number);
    const plan::Plan& plan = plan_for(one.mesh);
    const RunRecords run = MadeSteps(made_of(one, one.fault), plan).run();
    const Verdict verdict = judge_run(run);
    const std::string what = fmt::format(
        "run {}, mesh {} x {} x {}, {} of rank {} by {}: {}", number, one.mesh.data, one.mesh.tp,
        one.mesh.pp, name_of(one.fault.cause), one.fault.rank, one.fault.size, verdict.sentence);
    if (one.fault.cause == Cause::kCompute) {
      EXPECT_TRUE(blames_nobody(verdict)) << what;
      continue;
    }
    const double truth = mean_step(run) - mean_step(MadeSteps(made_of(one, {}), plan).run());
    // Where another stage is as long, or bytes are few, the fault costs nothing.
    if (truth < kMinTruth * mean_step(run)) continue;
    ++faults;
    if (verdict.cause != one.fault.cause || verdict.rank != one.fault.rank) {
      missed += what + "\n";
      continue;
    }
    ++found;
    const auto saving = std::ranges::find(verdict.causes, one.fault.cause, &Saving::cause);
    close += std::abs(*saving->seconds - truth) <= 0.2 * truth ? 1 : 0;
  }
  EXPECT_GE(faults, kRuns / 2);
  EXPECT_GE(found, 0.95 * faults) << found << " of " << faults << "\n" << missed;
  EXPECT_GE(close, 0.95 * found) << close << " of " << found;
  RecordProperty("found", fmt::format("{} of {}", found, faults));
  RecordProperty("savings", fmt::format("{} of {}", close, found));
}

}  // namespace
}  // namespace hanji::report
