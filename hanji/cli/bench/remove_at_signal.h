#pragma once

#include <filesystem>
#include <thread>

#include "hanji/base/fd.h"

namespace hanji::cli {

/// While it lives, stop signals (base/stop_signals.h) remove `folder` before they end this process, as
/// they do without it. Those that were ignored stay so.
///
/// Dispositions belong to the process, so there is at most one at a time. Programs that are started
/// meanwhile get the default ones.
class RemoveAtSignal {
 public:
  explicit RemoveAtSignal(std::filesystem::path folder);
  RemoveAtSignal(const RemoveAtSignal&) = delete;
  RemoveAtSignal& operator=(const RemoveAtSignal&) = delete;
  ~RemoveAtSignal();

 private:
  void wait_and_remove() const;

  std::filesystem::path folder_;
  base::Fd read_end_;
  base::Fd write_end_;
  std::thread thread_;
};

}  // namespace hanji::cli
