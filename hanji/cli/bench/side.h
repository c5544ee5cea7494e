#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/folder_lock.h"
#include "hanji/cli/bench/remove_at_signal.h"
#include "hanji/launch/launcher.h"
#include "hanji/report/bench_request.h"

namespace hanji::cli {

/// A folder that goes with its owner, also when a signal ends it, or with the next driver's start
/// where the owner was killed. At most one at a time.
class BenchFolder {
 public:
  static Result<BenchFolder> make();
  BenchFolder(BenchFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})),
        lock_(std::move(other.lock_)),
        at_signal_(std::move(other.at_signal_)) {}
  BenchFolder& operator=(BenchFolder&&) = delete;
  ~BenchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  BenchFolder(std::filesystem::path path, base::FolderLock lock)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        at_signal_(std::make_unique<RemoveAtSignal>(path_)) {}
  static void sweep(const std::filesystem::path& parent);

  std::filesystem::path path_;
  base::FolderLock lock_;  ///< As long as it is held, the folder is in use.
  std::unique_ptr<RemoveAtSignal> at_signal_;
};

/// Ranks that wait for requests and answer each with a line: ours, or a peer's.
///
/// Rank r reads folder/request.r and writes folder/answer.r. Between requests they sleep there, so
/// that a side that is not asked takes nothing from the other.
class Side {
 public:
  /// Makes the pipes of `ranks` ranks in `folder`.
  static Result<std::unique_ptr<Side>> make(std::string name, std::filesystem::path folder,
                                            int ranks);
  /// Ends the ranks: by the end of their requests, and after a while by a signal.
  ~Side();

  /// Starts processes whose ranks find the folder. They run until the side ends.
  void start(launch::LaunchOptions options);

  /// Sends the line to every rank; the answers by rank.
  /// Errors  kPeerLost with the end of the processes' log; kTimeout, and then they are ended;
  ///         kCorrupt for what is no answer.
  Result<std::vector<report::BenchAnswer>> ask(const std::string& line,
                                               std::chrono::seconds timeout);

  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  Side(std::string name, std::filesystem::path folder)
      : name_(std::move(name)), folder_(std::move(folder)) {}
  Status open_pipes(int ranks);
  Status read_lines(std::vector<std::string>& lines, std::chrono::seconds timeout);
  bool has_ended() const;
  Status why_ended();
  void kill_all();

  std::string name_;
  std::filesystem::path folder_;
  std::vector<base::Fd> requests_;
  std::vector<base::Fd> answers_;
  std::mutex mutex_;  // of pids_, which the launching thread notes
  std::vector<pid_t> pids_;
  std::future<Result<launch::Outcome>> outcome_;
};

}  // namespace hanji::cli
