#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hanji/plan/plan.h"
#include "hanji/trace/jsonl.h"
#include "hanji/trace/tensorboard.h"
#include "hanji/train/history.h"

namespace hanji::train {

/// Where a rank's text for people goes. Called with whole lines, or with one line to overwrite.
struct Output {
  std::function<void(std::string_view)> write;
  bool overwrites = false;  ///< A terminal: the progress line stays in its place.
};

/// One step as it is logged; seconds of this rank.
struct StepRecord {
  int64_t step = 0;  ///< Counted from 1: steps done.
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double step_seconds = 0;
  double data_seconds = 0;
  double exposed_communication_seconds = 0;
  int64_t num_tokens = 0;
  int64_t memory_bytes = 0;
};

/// What rank 0 tells while it trains: run.jsonl (every step), TensorBoard (every step) and a
/// progress line (every log_every steps).
class RunLog {
 public:
  /// Where an earlier run has written, the log goes on behind step `first_step`; what was logged
  /// of later steps goes.
  /// Errors  as rewind_log() and the writers' open().
  static Result<RunLog> open(const std::filesystem::path& out, const plan::Plan& plan,
                             int64_t first_step, Output output);

  Status step(const StepRecord& record);
  Status evaluation(int64_t step, double validation_loss);
  /// Something that went wrong and did not end the run, as a line of its own.
  Status warning(int64_t step, std::string_view what);
  Status flush();

  /// What earlier runs have logged of the steps up to the first one here.
  const History& history() const { return history_; }

 private:
  RunLog(const plan::Plan& plan, History history, Output output, trace::JsonlWriter jsonl,
         trace::TensorBoardWriter board);
  Status begin();
  std::string progress_line(const StepRecord& record) const;

  int64_t steps_;
  int ranks_;
  int64_t first_step_;
  History history_;
  int64_t log_every_;
  double flops_per_token_;
  Output output_;
  trace::JsonlWriter jsonl_;
  trace::TensorBoardWriter board_;
  double smoothed_seconds_ = 0;
};

}  // namespace hanji::train
