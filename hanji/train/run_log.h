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
  std::optional<CallSeconds> calls = {};
  int64_t num_targets = 0;
  int64_t memory_bytes = 0;
};

/// What an evaluation counted beside the loss.
struct Metric {
  std::string name = {};  ///< "accuracy"; empty: nothing.
  double value = 0;
};

/// What rank 0 tells while it trains: run.jsonl (every step), TensorBoard (every step) and a
/// progress line (every log_every steps).
///
/// Training never ends for want of a place to write numbers: a file that fails is told once and
/// left alone, a TensorBoard folder that was deleted is made again.
class RunLog {
 public:
  /// Where an earlier run has written, the log goes on behind step `first_step`; what was logged
  /// of later steps goes.
  /// Errors  as rewind_log() and the writers' open().
  static Result<RunLog> open(const std::filesystem::path& out, const plan::Plan& plan,
                             int64_t first_step, Output output);

  void step(const StepRecord& record);
  void evaluation(int64_t step, double validation_loss, const Metric& metric = {});
  /// Something that went wrong and did not end the run, as a line of its own.
  void warning(int64_t step, std::string_view what);
  void flush();

  /// What earlier runs have logged of the steps up to the first one here.
  const History& history() const { return history_; }

 private:
  /// A file to write to, until it fails.
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
  /// Gives a place up if `status` says that it failed.
  template <class Writer>
  void apply(const Status& status, int64_t step, Place<Writer>& place);
  void tell_warning(int64_t step, std::string_view what) const;
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
