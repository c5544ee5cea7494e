#include "hanji/train/save_log.h"

#include <fmt/format.h>

#include "hanji/base/units.h"

namespace hanji::train {

std::string SaveLog::newest() const {
  return newest_ == 0 ? "none is there yet" : fmt::format("the newest is of step {}", newest_);
}

void SaveLog::record(const checkpoint::SaveOutcome& outcome) {
  last_ = outcome;
  if (!outcome.status.ok()) {
    if (num_in_row_ == 0) first_in_row_ = outcome.step;
    ++num_failed_;
    ++num_in_row_;
    return;
  }
  if (num_in_row_ > 0) {
    warn_(outcome.step, fmt::format("checkpoints are saved again; {} since step {} failed",
                                    base::counted(num_in_row_, "save"), first_in_row_));
  }
  num_in_row_ = 0;
  newest_ = outcome.step;
}

void SaveLog::add(const std::vector<checkpoint::SaveOutcome>& ended) {
  for (const checkpoint::SaveOutcome& outcome : ended) {
    const Code before = last_.status.code();
    record(outcome);
    if (outcome.status.ok() || outcome.status.code() == before) continue;
    warn_(outcome.step,
          fmt::format("saving the checkpoint failed ({}), training goes on and tries again: {}",
                      newest(), outcome.status.message()));
  }
}

Status SaveLog::finish(const std::vector<checkpoint::SaveOutcome>& ended) {
  for (const checkpoint::SaveOutcome& outcome : ended) record(outcome);
  std::string before;
  if (num_in_row_ > 1) {
    before = fmt::format(", as did {} before it since step {}",
                         base::counted(num_in_row_ - 1, "save"), first_in_row_);
  }
  return last_.status.at(fmt::format("step {}: saving the last checkpoint failed{} ({})",
                                     last_.step, before, newest()));
}

}  // namespace hanji::train
