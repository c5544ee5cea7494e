#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/plan/plan.h"
#include "hanji/report/operations.h"
#include "hanji/report/step_account.h"
#include "hanji/report/training_log.h"

namespace hanji::report {

/// The steps of one rank, in ascending order; those that a resumed run has done again only once.
struct RankSteps {
  int rank = 0;
  std::vector<StepAccount> accounts;
};

/// What the folder of a run says of it.
struct RunRecords {
  std::filesystem::path folder;
  plan::Plan plan;
  std::vector<RankSteps>
      ranks;  ///< Those whose files lie here, ascending; ranks of other hosts keep theirs there.
  std::string summary;  ///< summary.json; empty: the run has not ended.
  // Of read_whole_run() alone:
  std::string certificate;  ///< certificate.json of `hanji verify`; empty: there is none.
  std::string flight;       ///< logs/flight.json of the last failure; empty: none is left.
  TrainingLog log;          ///< run.jsonl.
  std::vector<OperationsRecord> operations;  ///< Operations of profiled steps, by rank.
};

/// Reads plan.json, summary.json and the accounts of `folder`: what a verdict needs. A line that a killed rank has left
/// open is dropped.
/// Errors  not_found without a plan; corrupt, naming file and line.
Result<RunRecords> read_run(const std::filesystem::path& folder);
/// The same and what else a report shows: run.jsonl, certificate.json, logs/flight.json, operations.
Result<RunRecords> read_whole_run(const std::filesystem::path& folder);

}  // namespace hanji::report
