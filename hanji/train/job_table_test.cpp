// Pairs of properties of jobs, each in one row: a row trains as one process does, in float64 to the last sums'
// order and in stable to the bit; moves what its plan says; and is restored from what its ranks save.
#include "hanji/train/test_job_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "hanji/comm/gloo/group.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/state.h"
#include "hanji/train/test_hosts_run.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

using job_table::PlannedRow;
using job_table::Row;

/// Two values, each as (property, value).
using Pair = std::array<std::pair<size_t, size_t>, 2>;

std::string name_of(const Pair& pair) {
  const auto properties = job_table::properties();
  return fmt::format("{} with {}", properties[pair[0].first].values[pair[0].second].name,
                     properties[pair[1].first].values[pair[1].second].name);
}

std::vector<Pair> pairs_of(const Row& row) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < row.size(); ++i) {
    for (size_t k = i + 1; k < row.size(); ++k) pairs.push_back({{{i, row[i]}, {k, row[k]}}});
  }
  return pairs;
}

std::vector<Pair> all_pairs() {
  const auto properties = job_table::properties();
  std::vector<Pair> pairs;
  for (size_t i = 0; i < properties.size(); ++i) {
    for (size_t k = i + 1; k < properties.size(); ++k) {
      for (size_t a = 0; a < properties[i].values.size(); ++a) {
        for (size_t b = 0; b < properties[k].values.size(); ++b)
          pairs.push_back({{{i, a}, {k, b}}});
      }
    }
  }
  return pairs;
}

/// Jobs with the pair and otherwise the first values, but for one other property at a time.
std::vector<Row> jobs_with(const Pair& pair) {
  const auto properties = job_table::properties();
  Row plain(properties.size(), 0);
  for (const auto& [property, value] : pair) plain[property] = value;
  std::vector<Row> jobs = {plain};
  for (size_t i = 0; i < properties.size(); ++i) {
    if (i == pair[0].first || i == pair[1].first) continue;
    for (size_t value = 1; value < properties[i].values.size(); ++value) {
      jobs.push_back(plain);
      jobs.back()[i] = value;
    }
  }
  return jobs;
}

TEST(JobTable, HasEveryPairOfValuesThatSomeJobHas) {
  std::set<Pair> trained;
  for (const Row& row : job_table::rows()) {
    const auto planned = job_table::planned(row);
    EXPECT_TRUE(planned.ok()) << job_table::to_string(row) << ": " << planned.status().to_string();
    for (const Pair& pair : pairs_of(row)) trained.insert(pair);
  }
  for (const Pair& pair : all_pairs()) {
    if (trained.contains(pair)) continue;
    for (const Row& row : jobs_with(pair)) {
      if (!job_table::planned(row).ok()) continue;
      ADD_FAILURE() << name_of(pair)
                    << " is in no row; one could be: " << job_table::to_string(row);
      break;
    }
  }
}

struct OneProcess {
  JobRun run;
  std::string hash;
};

class JobTableRow : public testing::TestWithParam<Row> {
 protected:
  /// One for all rows of the same job.
  static const OneProcess& run_of_one_process(const Row& row, const plan::Plan& plan) {
    static std::map<std::string, OneProcess> runs;
    const auto [found, is_new] =
        runs.try_emplace(fmt::format("{} {}", plan.job_hash, name_of(plan.config.compute.dtype)));
    OneProcess& one = found->second;
    if (!is_new) return one;
    const Tampering look{.at_end = [&](const Job& job) { one.hash = hashes_of(job).state; }};
    one.run = run_job(plan, job_table::dataset_of(row), look)[0];
    return one;
  }
  std::vector<JobRun> run(const Row& row, const PlannedRow& planned) {
    restored_.resize(planned.ranks.ranks);
    hashes_.resize(planned.ranks.ranks);
    staging_.resize(planned.ranks.ranks);
    const Tampering look{.at_end = [&](const Job& job) {
      const int rank = job.group.rank();
      EXPECT_EQ(job.strategy->sharers() != nullptr, plan::shards_span_hosts(planned.ranks));
      for (const auto& [category, bytes] : job.group.heap().usage()) {
        if (category == "staging between hosts") staging_[rank] += bytes;
      }
      hashes_[rank] = hashes_of(job).state;
      restored_[rank] = hash_restored(job, planned.ranks, folder_.path());
    }};
    const Dataset& dataset = job_table::dataset_of(row);
    return planned.hosts.size() == 1
               ? run_job(planned.ranks, dataset, look)
               : run_job_on_hosts(planned.ranks, planned.hosts, dataset, look);
  }
  test::TemporaryFolder folder_;
  std::vector<std::string> hashes_, restored_;
  std::vector<int64_t> staging_;
};

void expect_planned(const std::vector<JobRun>& runs, const PlannedRow& row) {
  int64_t wire_bytes = 0, network_bytes = 0;
  for (const JobRun& run : runs) {
    wire_bytes += run.wire_bytes;
    network_bytes += run.network_bytes;
  }
  const plan::Prediction& plan = row.ranks.predicted;
  EXPECT_EQ(runs[0].collectives, plan.collectives_per_step);
  EXPECT_EQ(network_bytes, plan.network_bytes_per_step);
  if (row.hosts.size() == 1) EXPECT_EQ(wire_bytes, plan.wire_bytes_per_step);
}

int64_t planned_staging(const plan::Plan& plan, int rank) {
  for (const plan::MemoryLine& line : plan::rank_memory(plan, plan.micro_batch, rank)) {
    if (line.category == "staging between hosts") return line.bytes;
  }
  return 0;
}

TEST_P(JobTableRow, TrainsAsOneProcessDoes) {
  const PlannedRow planned = job_table::planned(GetParam()).or_throw();
  if (planned.hosts.size() > 1 && !comm::gloo::available())
    GTEST_SKIP() << "this build has no Gloo";
  const auto& [alone, hash] = run_of_one_process(GetParam(), planned.alone);
  const std::vector<JobRun> runs = run(GetParam(), planned);
  expect_trained_alike(runs, alone, job_table::is_stable(GetParam()) ? 0 : kAdamDifference);
  if (job_table::is_stable(GetParam())) EXPECT_EQ(hashes_[0], hash);
  expect_planned(runs, planned);
  EXPECT_THAT(restored_, testing::Each(hashes_[0]));
  // What ranks compare before step 1 goes through it too: some bytes of each parameter and buffer, and of the job.
  const auto room = static_cast<double>(4096 + 128 * alone.parameters.size());
  for (int rank = 0; rank < planned.ranks.ranks; ++rank) {
    EXPECT_NEAR(staging_[rank], planned_staging(planned.ranks, rank), room) << rank;
  }
}

std::string name_of_row(const testing::TestParamInfo<Row>& info) {
  std::string name = job_table::to_string(info.param);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Rows, JobTableRow, testing::ValuesIn(job_table::rows()), name_of_row);

}  // namespace
}  // namespace hanji::train
