#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::report {

/// What run.jsonl says of a run beside seconds: curves, and what went wrong on the way.
struct TrainingLog {
  struct Point {
    int64_t step = 0;  ///< Steps done.
    double value = 0;
  };
  struct Resumption {
    int64_t step = 0;  ///< Steps done before it.
    int ranks = 0;
  };
  struct Warning {
    int64_t step = 0;
    std::string text;
  };

  std::vector<Point> train_losses;  ///< Losses of steps with a valid target and a finite loss.
  std::vector<Point> validation_losses;
  std::string metric_name;     ///< Metric of validation beside the loss; empty: the model has none.
  std::vector<Point> metrics;  ///< Its values.
  std::vector<Resumption> resumptions;
  std::vector<Warning> warnings;
  int64_t without_targets = 0;  ///< Steps without a valid target.
  int64_t not_finite = 0;       ///< Steps whose loss is no number.
};

/// Reads a run.jsonl; an empty log where there is none. A line that a killed run has left open is dropped.
/// Errors  corrupt, naming file and line.
Result<TrainingLog> read_training_log(const std::filesystem::path& path);

}  // namespace hanji::report
