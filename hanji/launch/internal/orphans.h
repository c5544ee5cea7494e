#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

namespace hanji::launch {

/// Makes a launcher the parent of what its ranks leave behind, as init is by default: also where it is
/// process 1 of a container, or where process 1 reaps nobody, no dead process stays in the table.
class Orphans {
 public:
  /// Looked for so often.
  static constexpr auto kInterval = std::chrono::milliseconds(1000);

  /// `adopts` false: does nothing, in a process that has other children.
  explicit Orphans(bool adopts);
  /// Gives those that still run to init.
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  bool adopts() const { return adopts_; }
  /// Reaps dead children that are no ranks. Never blocks.
  void reap(const std::function<bool(pid_t)>& is_rank) const;

 private:
  const bool adopts_;
  int before_ = 0;  ///< Whether the process adopted orphans already.
};

}  // namespace hanji::launch
