#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>

#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// ranks.json of a run's folder: rank, pid and host of the launcher and of every rank that lives,
/// rewritten whenever that changes, for find_job().
class Roster {
 public:
  explicit Roster(std::filesystem::path path);

  /// Order   every event of the launch, as it comes.
  void note(const RankEvent& event);
  /// The run is over.
  void remove();
  /// Of the last change of the file.
  const Status& status() const { return status_; }

 private:
  void write();

  std::filesystem::path path_;
  std::string host_;
  std::map<int, pid_t> pids_;
  Status status_;
};

}  // namespace hanji::launch
