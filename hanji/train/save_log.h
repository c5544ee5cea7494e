#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hanji/checkpoint/saver.h"

namespace hanji::train {

/// Reports the saves of a run that fail: the first of consecutive failures, each with another cause, the
/// save that succeeds again, and the last one of the run.
class SaveLog {
 public:
  using Warn = std::function<void(int64_t step, const std::string& what)>;

  /// `newest`: the step of the checkpoint that the run began with; 0: none. `warn` receives the step that
  /// was to be saved.
  explicit SaveLog(Warn warn, int64_t newest = 0) : warn_(std::move(warn)), newest_(newest) {}

  void add(const std::vector<checkpoint::SaveOutcome>& ended);

  /// Adds the last saves of the run. Errors  that of the last one, with its step and the number of consecutive
  /// failures before it.
  Status finish(const std::vector<checkpoint::SaveOutcome>& ended);
  /// Saves that failed so far.
  int64_t num_failed() const { return num_failed_; }

 private:
  void record(const checkpoint::SaveOutcome& outcome);
  std::string newest() const;

  Warn warn_;
  int64_t newest_;            ///< Step of the last good save.
  int64_t num_failed_ = 0;    ///< Failures of the whole run.
  int64_t num_in_row_ = 0;    ///< Since the last good save,
  int64_t first_in_row_ = 0;  ///< and the step of the first of them.
  checkpoint::SaveOutcome last_;
};

}  // namespace hanji::train
