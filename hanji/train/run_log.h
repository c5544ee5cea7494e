#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/terminal.h"
#include "hanji/plan/plan.h"
#include "hanji/trace/jsonl.h"
#include "hanji/trace/tensorboard.h"
#include "hanji/train/history.h"

namespace hanji::train {

/// The destination of a rank's output. Called with whole lines, or with one line to overwrite.
struct Output {
  std::function<void(std::string_view)> write;
  bool overwrites = false;               ///< A terminal: the progress line is overwritten.
  int columns = base::kTerminalColumns;  ///< The most of a progress line.
};

/// One step as it is logged; seconds of this rank.
struct StepRecord {
  int64_t step = 0;  ///< Counted from 1: steps done.
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double step_seconds = 0;
  double data_seconds = 0;
  std::optional<CallSeconds> calls = {};
  int64_t num_targets = 0;
  int64_t memory_bytes = 0;
};

/// The metric of an evaluation besides the loss.
struct Metric {
  std::string name = {};  ///< "accuracy"; empty: nothing.
  double value = 0;
};

/// The log of rank 0 during training: run.jsonl (every step), TensorBoard (every step) and a
/// progress line (every log_every steps).
///
/// A failed write does not end the training: it is reported once, and the file is not written any
/// more. A deleted TensorBoard folder is created again.
class RunLog {
 public:
  /// If an earlier run has written to `out`, continues its log after step `first_step` and removes
  /// later steps.
  /// Errors  as rewind_log() and the writers' open().
  static Result<RunLog> open(const std::filesystem::path& out, const plan::Plan& plan,
                             int64_t first_step, Output output);

  void step(const StepRecord& record);
  void evaluation(int64_t step, double validation_loss, const Metric& metric = {});
  /// Logs a problem that did not end the run, in a separate line.
  void warning(int64_t step, std::string_view what);
  void flush();

  /// The log of earlier runs up to the first step of this one.
  const History& history() const { return history_; }

 private:
  /// A file that is written until a write fails.
  template <class Writer>
  struct Place {
    std::string_view name;
    std::optional<Writer> writer;
  };

  RunLog(const plan::Plan& plan, History history, Output output, std::filesystem::path out);
  Status begin();
  void write_line(int64_t step, std::string_view line);
  void scalar(std::string_view tag, int64_t step, double value);
  void tend_board(int64_t step);
  /// Closes a place if `status` is an error.
  template <class Writer>
  void apply(const Status& status, int64_t step, Place<Writer>& place);
  void print_warning(int64_t step, std::string_view what) const;
  std::string progress_line(const StepRecord& record) const;

  int64_t steps_;
  int ranks_;
  int64_t first_step_;
  History history_;
  int64_t log_every_;
  double flops_per_target_;
  std::string targets_;  ///< "tokens", "images".
  Output output_;
  std::filesystem::path out_;
  Place<trace::JsonlWriter> jsonl_{"run.jsonl", {}};
  Place<trace::TensorBoardWriter> board_{"tensorboard", {}};
  double smoothed_seconds_ = 0;
};

}  // namespace hanji::train
