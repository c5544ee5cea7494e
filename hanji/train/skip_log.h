#pragma once

#include <mutex>
#include <set>
#include <string>

#include "hanji/base/log.h"
#include "hanji/base/status.h"

namespace hanji::train {

/// Tells of the samples that a process skips: the first ones by a line each, once however often they are
/// read, then that there are more.
/// Thread  any number of threads may add.
class SkipLog {
 public:
  static constexpr size_t kMaxLines = 10;
  explicit SkipLog(base::Log log) : log_(std::move(log)) {}

  /// The error of a sample, which names it.
  void add(const Status& status);

  /// While it lives, what is read is not of a run, and not told of. `log` may be null.
  class Silence {
   public:
    explicit Silence(SkipLog* log);
    ~Silence();
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;

   private:
    SkipLog* log_;
  };

 private:
  base::Log log_;
  std::mutex mutex_;
  int num_silences_ = 0;
  std::set<std::string> told_;
};

}  // namespace hanji::train
