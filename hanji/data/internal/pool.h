#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace hanji::data::internal {

/// Tools that keep memory: as many as threads have used at once.
/// Thread  any number at once.
template <class Tool>
class Pool {
 public:
  std::unique_ptr<Tool> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Tool>();
    auto one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give_back(std::unique_ptr<Tool> one) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(one));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Tool>> free_;
};

}  // namespace hanji::data::internal
