#include "hanji/train/skip_log.h"

namespace hanji::train {

void SkipLog::add(const Status& status) {
  const std::lock_guard lock(mutex_);
  const bool is_over = told_.size() > kMaxLines;
  if (num_silences_ > 0 || is_over || !told_.insert(status.message()).second) return;
  if (told_.size() <= kMaxLines) return log_.warn(status.message());
  log_.warn("more samples are skipped without a line each");
}

SkipLog::Silence::Silence(SkipLog* log) : log_(log) {
  if (log_ == nullptr) return;
  const std::lock_guard lock(log_->mutex_);
  ++log_->num_silences_;
}

SkipLog::Silence::~Silence() {
  if (log_ == nullptr) return;
  const std::lock_guard lock(log_->mutex_);
  --log_->num_silences_;
}

}  // namespace hanji::train
