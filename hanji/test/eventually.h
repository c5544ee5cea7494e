#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "hanji/base/clock.h"

namespace hanji::test {

/// Whether `holds` is true at last: polled with a deadline far beyond what a loaded machine needs.
inline bool eventually(const std::function<bool()>& holds) {
  const auto deadline = base::Deadline::after(std::chrono::seconds(30));
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace hanji::test
