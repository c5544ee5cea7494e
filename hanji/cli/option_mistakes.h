#pragma once

#include <string>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::cli {

/// What is wrong with the options of a verb, said all at once.
class OptionMistakes {
 public:
  void add(const Status& mistake) { found_.push_back(mistake); }
  void add(std::string message) { add(base::invalid_argument(std::move(message))); }

  /// Throws Error: the only mistake, or kInvalidArgument with a line for each.
  void throw_if_any() const {
    if (found_.size() == 1) throw Error(found_.front());
    std::string lines;
    for (const Status& one : found_) lines += (lines.empty() ? "" : "\nhanji: ") + one.message();
    if (!found_.empty()) throw Error(base::invalid_argument(lines));
  }

 private:
  std::vector<Status> found_;
};

}  // namespace hanji::cli
